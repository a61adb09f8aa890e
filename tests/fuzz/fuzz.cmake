# Runs libFuzzer for SECONDS, from the seeds that REPLAY writes and from what earlier runs have left in CORPUS.
execute_process(COMMAND "${REPLAY}" --seeds "${CORPUS}" COMMAND_ERROR_IS_FATAL ANY)
execute_process(
  COMMAND "${FUZZ}" "${CORPUS}" -max_total_time=${SECONDS} -timeout=20 -rss_limit_mb=4096 -print_final_stats=1
    "-artifact_prefix=${CORPUS}."
  COMMAND_ERROR_IS_FATAL ANY)
