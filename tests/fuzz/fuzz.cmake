# Runs libFuzzer on RUNS inputs, from the seeds that REPLAY writes and from what earlier runs have left in CORPUS. A clean tree
# goes the same way each time.
execute_process(COMMAND "${REPLAY}" --seeds "${CORPUS}" COMMAND_ERROR_IS_FATAL ANY)
execute_process(
  COMMAND "${FUZZ}" "${CORPUS}" -seed=1 -runs=${RUNS} -timeout=1200 -rss_limit_mb=4096 -print_final_stats=1
    "-artifact_prefix=${CORPUS}."
  COMMAND_ERROR_IS_FATAL ANY)
