# shellcheck shell=bash
# ./run bench: sourced by `run`, whose functions it calls.
# shellcheck disable=SC2154 # $root and $build are set there

bench_names() {
  local file
  for file in tests/bench/programs/*_bench.cpp; do basename "$file" _bench.cpp; done
  echo generate
  echo graphs
  echo hosts
  echo import
  echo pipeline
  echo plan
  echo quantize
  echo serve
  echo shard
  echo stages
  echo train
}

run_bench() {
  local name=${1:-}
  [ -n "$name" ] || die "which benchmark? There are: $(bench_names | paste -sd ' ')"
  shift
  if [ "$name" = generate ]; then
    setup
    make_targets release plait plait_cli
    PLAIT_LIBRARY=${PLAIT_LIBRARY:-$build/release/bindings/c/libplait.so} exec python3 tests/bench/generate.py "$@"
  fi
  if [ "$name" = graphs ]; then
    setup
    make_targets release plait
    PLAIT_LIBRARY=${PLAIT_LIBRARY:-$build/release/bindings/c/libplait.so} exec python3 tests/bench/graphs.py "$@"
  fi
  if [ "$name" = hosts ]; then
    setup
    install missing_hosts
    hosts=1
    make_targets release plait_java_native plait_csharp_tests fixtures
    step "packing the jars" mvn -B -q -f bindings/java "-Dplait.cmake=$build/release" -DskipTests package
    local model=${PLAIT_MODELS:-$root/models}/gemma-3-270m
    [ ! -e "$model/model.onnx" ] || set -- --model "$model" "$@"
    exec python3 tests/bench/hosts.py "$build/release" "$@"
  fi
  if [ "$name" = shard ]; then
    setup
    make_targets release plait plait_cli comm_bench
    PLAIT_LIBRARY=${PLAIT_LIBRARY:-$build/release/bindings/c/libplait.so} \
      PLAIT_COMM_BENCH=$build/release/tests/comm_bench exec python3 tests/bench/shard.py "$@"
  fi
  if [ "$name" = stages ]; then
    setup
    make_targets release plait
    PLAIT_LIBRARY=${PLAIT_LIBRARY:-$build/release/bindings/c/libplait.so} exec python3 tests/bench/stages.py "$@"
  fi
  if [ "$name" = train ]; then
    setup
    make_targets release plait plait_cli
    PLAIT=${PLAIT:-$build/release/bindings/cli/plait} exec python3 tests/bench/train.py "$@"
  fi
  if [ "$name" = pipeline ]; then
    setup
    make_targets release pipeline_bench
    PLAIT_PIPELINE_BENCH=$build/release/tests/pipeline_bench exec python3 tests/bench/pipeline.py "$@"
  fi
  if [ "$name" = plan ]; then
    setup
    make_targets release plait_cli plan_test
    PLAIT=${PLAIT:-$build/release/bindings/cli/plait} exec python3 tests/bench/plan.py "$@"
  fi
  if [ "$name" = quantize ]; then
    setup
    make_targets release plait_cli
    PLAIT=$build/release/bindings/cli/plait exec python3 tests/bench/quantize.py "$@"
  fi
  if [ "$name" = serve ]; then
    setup
    make_targets release plait plait_server plait_cli
    PLAIT=$build/release/bindings/cli/plait PLAIT_LIBRARY=$build/release/bindings/c/libplait.so exec python3 tests/bench/serve.py "$@"
  fi
  if [ "$name" = import ]; then
    setup
    make_targets release plait plait_cli
    local venv=${PLAIT_SAMPLES_VENV:-$root/.venv-samples}
    PLAIT_SAMPLES_VENV=$venv step "the Python environment of the samples" samples/gemma3/fetch.sh --environment
    PLAIT=$build/release/bindings/cli/plait exec "$venv/bin/python" tests/bench/import.py "$@"
  fi
  [ -e "tests/bench/programs/${name}_bench.cpp" ] || die "no benchmark $name; there are: $(bench_names | paste -sd ' ')"
  setup
  make_targets release "${name}_bench"
  exec "$build/release/tests/${name}_bench" "$@"
}
