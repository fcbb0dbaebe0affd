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
  for source in tests/core/*.cc; do
    test=$(basename "$source" .cc)
    "${CXX:-g++}" "${flags[@]}" -Wno-tsan "-fsanitize=$sanitizer" "$source" \
      hvd_ft/core/*.cc -o "$out/$test"
    arguments=()
    [ "$test" = kill_test ] && arguments=(3 1500 5 1)
    [ "$test" = ring_sim ] && arguments=(--scenarios tests/core/ring_scenarios.txt)
    echo "$sanitizer: $test"
    TSAN_OPTIONS=halt_on_error=1 "$out/$test" "${arguments[@]}"
  done
done
