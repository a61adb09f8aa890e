#!/bin/sh
# The library never ends its host's process and never writes to its streams: none of our own object files refers to a
# function that does.
#
#   no_abort_no_print.sh CRATE FILE...      FILE: .a or .o, built without sanitizers; third parties' are not given
#
# What objects cannot show, and where it is seen to instead:
# - An exception out of a noexcept function ends the process without a reference of ours (the unwinder does it): the
#   tests of errors, and the fuzzers, go through the edges.
# - std::terminate is in the destructor and the move assignment of std::thread, for a thread that was not joined. An
#   object that starts threads may refer to it; others may not.
# - dlopen is for the plug-ins of MPI and CUDA, which the host asks for, and the libraries that these name.
# - fwrite, write and the like may go to a file that was asked for; what they must not get is stdout or stderr, which
#   would be a reference of its own.
# - The objects of the Rust crates hold instances of other crates' generic code, so there the sources are searched.
set -eu

rust=$1
shift
command -v nm >/dev/null || { echo "nm is missing (binutils)"; exit 1; }

forbidden='abort|exit|_exit|_Exit|quick_exit|_ZSt10quick_exiti|raise|kill|tgkill|__assert_fail|__assert_perror_fail'
forbidden="$forbidden|printf|vprintf|__printf_chk|__vprintf_chk|puts|putchar|putc|perror|psignal|stdout|stderr"
forbidden="$forbidden|err|errx|verr|verrx|warn|warnx|vwarn|vwarnx|error|syslog|vsyslog|system|popen"
# std::cout, cerr, clog and their wide forms; libstdc++'s failed assertion
forbidden="$forbidden|_ZSt4(cout|cerr|clog)|_ZSt5(wcout|wcerr|wclog)|_ZSt21__glibcxx_assert_fail.*"
terminate='_ZSt9terminatev|__cxa_call_terminate|__clang_call_terminate'
loads='dlm?open'
may_load='(message_channel|library)[.]cpp[.]o'
starts_thread='_ZNSt6thread15_M_start_thread.*'

found=$(mktemp)
trap 'rm -f "$found"' EXIT
objects=0
for file in "$@"; do
  # "archive:object:   U name" of nm -A; a plain object has no middle part.
  nm -A --undefined-only "$file" >"$found"
  [ -s "$found" ] || { echo "$file: no symbols, so nothing was checked"; exit 1; }
  objects=$((objects + $(sed 's/: *[Uwv] .*//' "$found" | sort -u | wc -l)))
  awk -v forbidden="^($forbidden)\$" -v terminate="^($terminate)\$" -v threads="^($starts_thread)\$" \
    -v loads="^($loads)\$" -v may_load="(^|:)($may_load)\$" '
    { object = $1; sub(/:$/, "", object); sub(/.*\//, "", object); name = $NF; sub(/@.*/, "", name) }
    name ~ loads && object !~ may_load { print object ": loads code by " name; bad = 1 }
    name ~ forbidden { print object ": refers to " name; bad = 1 }
    name ~ terminate { ends[object] = name }
    name ~ threads { starts[object] = 1 }
    END {
      for (object in ends) if (!(object in starts)) { print object ": refers to " ends[object]; bad = 1 }
      exit bad
    }' "$found" || failed=1
done

# Tests inside the crate's files stand at their end.
for file in "$rust"/src/*.rs "$rust"/*/src/*.rs; do
  awk -v file="$file" '
    /#\[cfg\(test\)\]/ { exit bad }
    /(^|[^a-z_])(e?print(ln)?|dbg|unimplemented|todo)!|process::(exit|abort)|std::io::(stdout|stderr)/ {
      print file ":" NR ": " $0
      bad = 1
    }
    END { exit bad }' "$file" || failed=1
done

echo "$objects objects"
[ "$objects" -ge 50 ] || { echo "there should be more of them: are all libraries given?"; exit 1; }
[ -z "${failed:-}" ]
