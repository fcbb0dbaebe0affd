#!/usr/bin/env bash
# Builds the core's tests with each sanitizer and runs them; a finding ends it.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PWD/.venv/bin:$PATH  # for cmake
out=$(mktemp -d)
HVDFT_TEST_DIR=$(mktemp -d /dev/shm/hvdft-sanitize-XXXXXX)
export HVDFT_TEST_DIR TSAN_OPTIONS=halt_on_error=1
trap 'rm -rf "$out" "$HVDFT_TEST_DIR"' EXIT
for sanitizer in ${SANITIZE:-address,undefined thread}; do
  # The fences beside sequence counters are unknown to the thread sanitizer; the counters are not.
  flags="-O1 -g1 -Wno-tsan -fno-sanitize-recover=all -fsanitize=$sanitizer"
  cmake -S . -B "$out/$sanitizer" -DHVDFT_TESTS=ON -DCMAKE_BUILD_TYPE=None "-DCMAKE_CXX_FLAGS=$flags" \
    "-DHVDFT_MPI_INCLUDE=$PWD/.venv/include" >"$out/log"
  cmake --build "$out/$sanitizer" --target core_tests --parallel "$(nproc)" >"$out/log" || { cat "$out/log"; exit 1; }
  for source in tests/core/*.cc tests/core/*/*.cc; do
    test=$(basename "$source" .cc)
    arguments=(small)
    case $test in
      kill_test) arguments=(3 1500 60 1) ;;
      message_kill_test | window_test) arguments=() ;;
      ring_sim) arguments=(--scenarios tests/core/simulator/ring_scenarios.txt) ;;
    esac
    case $sanitizer-$source in
      *-*/large/*) continue ;;          # leaves threads that are never resumed
      thread-*/stepped/* | thread-*/leaders/*) continue ;;  # one thread each, thousands of processes
      thread-*/message_generations_test.cc) continue ;;  # maps more than that sanitizer leaves
      address*/threaded/*) continue ;;  # leaves what is to last as long as a worker's process
    esac
    echo "$sanitizer: $test"
    "$out/$sanitizer/$test" "${arguments[@]}"
  done
done
