#!/usr/bin/env bash
# Builds the core's tests with each sanitizer and runs them; a finding ends it.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(mktemp -d)
HVDFT_TEST_DIR=$(mktemp -d /dev/shm/hvdft-sanitize-XXXXXX)
export HVDFT_TEST_DIR
trap 'rm -rf "$out" "$HVDFT_TEST_DIR"' EXIT
flags=(-std=c++17 -O1 -g -Wall -Wextra -pthread -fno-sanitize-recover=all -Ihvd_ft/core)
for sanitizer in address,undefined thread; do
  # The fences beside sequence counters are unknown to the thread sanitizer; the counters are not.
  compile=("${CXX:-g++}" "${flags[@]}" -Wno-tsan "-fsanitize=$sanitizer")
  core="$out/core-$sanitizer"
  mkdir "$core"
  # Each of them once, on all CPUs, as compiling takes longer than running.
  printf '%s\0' hvd_ft/core/*.cc | xargs -0 -n 1 -P "$(nproc)" bash -c \
    'core=$1 source=${@: -1}; shift; "$@" -c -o "$core/$(basename "$source" .cc).o"' _ "$core" "${compile[@]}"
  for source in tests/core/*.cc; do
    test=$(basename "$source" .cc)
    "${compile[@]}" "$source" "$core"/*.o -o "$out/$test"
    arguments=()
    [ "$test" = kill_test ] && arguments=(3 1500 5 1)
    [ "$test" = segments_test ] && arguments=(small)
    [ "$test" = ring_sim ] && arguments=(--scenarios tests/core/ring_scenarios.txt)
    echo "$sanitizer: $test"
    TSAN_OPTIONS=halt_on_error=1 "$out/$test" "${arguments[@]}"
  done
done
