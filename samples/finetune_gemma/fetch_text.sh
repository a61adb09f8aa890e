#!/bin/sh
# Fetches a text to train on: the Debian Policy Manual (GPL 2 or later), out of its Debian package.
#
#   fetch_text.sh FILE
set -eu

[ $# -eq 1 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ ! -f "$1" ] || exit 0
case $1 in /*) target=$1 ;; *) target=$PWD/$1 ;; esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
apt-get -q download debian-policy >log 2>&1 || { cat log >&2; echo "fetch_text.sh: apt-get cannot fetch debian-policy" >&2; exit 1; }
dpkg-deb -x debian-policy_*.deb tree
gzip -dc tree/usr/share/doc/debian-policy/policy.txt.gz >text
mkdir -p "$(dirname "$target")"
mv text "$target"
