# Makes ARCHIVE of the one object OBJECT, in which only the symbols that SYMBOLS lists can be seen.

# Rust's objects carry bitcode, which tools with a plug-in of an older LLVM stumble over.
execute_process(COMMAND "${OBJCOPY}" --strip-debug --remove-section=.llvmbc --remove-section=.llvmcmd "${OBJECT}" "${OBJECT}.plain"
  COMMAND_ERROR_IS_FATAL ANY)
# What the compiler makes unique in a whole process stays global whatever objcopy is told: such names get one of ours.
execute_process(COMMAND "${NM}" --defined-only "${OBJECT}.plain" OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "[0-9a-f]+ u [^\n]+" unique "${symbols}")
set(renamed "")
set(number 0)
foreach(line ${unique})
  string(REGEX REPLACE ".* u " "" name "${line}")
  string(APPEND renamed "${name} plait_unique_${number}\n")
  math(EXPR number "${number} + 1")
endforeach()
file(WRITE "${OBJECT}.renamed" "${renamed}")
execute_process(COMMAND "${OBJCOPY}" "--redefine-syms=${OBJECT}.renamed" "--keep-global-symbols=${SYMBOLS}" "${OBJECT}.plain"
  "${OBJECT}.hidden" COMMAND_ERROR_IS_FATAL ANY)
file(REMOVE "${ARCHIVE}")
execute_process(COMMAND "${AR}" rcs "${ARCHIVE}" "${OBJECT}.hidden" COMMAND_ERROR_IS_FATAL ANY)
file(REMOVE "${OBJECT}.plain" "${OBJECT}.hidden" "${OBJECT}.renamed")
