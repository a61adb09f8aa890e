#!/bin/sh
# Puts what the ONNX importer needs into PREFIX (default: .deps/protobuf next to the top CMakeLists.txt):
#   lib/libprotobuf-lite.a   Protocol Buffers' lite runtime, position-independent and hidden
#   include/google/...       its headers
#   bin/protoc               the compiler of the same version
#   proto/onnx-ml.proto      the format, from the onnx package
# The library is built from the distribution's source package, with the distribution's patches: the packaged static
# library is not position-independent, and the packaged shared one can clash with the copy that a host program has
# loaded. The lite runtime has no registry of message types, so two copies in one process do not meet. Needs apt (Debian
# or Ubuntu, lists up to date), dpkg-dev, a C++ compiler, python3 with pip. The system's apt configuration is read, never
# changed. A finished PREFIX is left as it is; an interrupted run leaves nothing behind.
set -eu

onnx_version=1.22.0
root=$(cd "$(dirname "$0")/../.." && pwd)
prefix=${1:-$root/.deps/protobuf}
stamp="plait 2, onnx $onnx_version"
# What reading and writing ONNX links of the lite runtime, in src/google/protobuf.
sources="arena arenastring extension_set generated_enum_util generated_message_util implicit_weak_message message_lite
  parse_context repeated_field repeated_ptr_field wire_format_lite io/coded_stream io/zero_copy_stream
  io/zero_copy_stream_impl io/zero_copy_stream_impl_lite stubs/common stubs/int128 stubs/status stubs/stringpiece
  stubs/structurally_valid stubs/strutil"
compiler=${CXX:-c++}

say() { echo "get_protobuf: $*"; }
fail() { say "$*" >&2; exit 1; }

if [ "$(cat "$prefix/stamp" 2>/dev/null)" = "$stamp" ]; then
  say "$prefix is up to date"
  exit 0
fi
for tool in apt-get dpkg-deb dpkg-source "$compiler" ar python3; do
  command -v "$tool" >/dev/null || fail "$tool is missing; install it first"
done

mkdir -p "$(dirname "$prefix")"
prefix=$(cd "$(dirname "$prefix")" && pwd)/$(basename "$prefix")
# Next to the prefix, so that the last step is a rename within one file system.
work=$(mktemp -d "$prefix.work.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
chmod 755 "$work"
mkdir -p "$work/lists/partial" "$work/source" "$work/out/proto" "$work/out/lib/protoc"

# The distribution's own archives among the present entries, as source entries. Other archives rarely carry sources.
for origin in Debian Ubuntu; do
  apt-get indextargets --format 'deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)' \
    'Created-By: Packages' "Origin: $origin" 2>/dev/null || true
done | sort -u > "$work/sources.list"
[ -s "$work/sources.list" ] || fail "apt knows no Debian or Ubuntu archive; run apt-get update first"

say "fetching the source package of protobuf"
apt_source="-o Dir::Etc::SourceList=$work/sources.list -o Dir::Etc::SourceParts=/dev/null
  -o Dir::State::Lists=$work/lists -o APT::Sandbox::User=root -o Dir::Cache::srcpkgcache= -o Dir::Cache::pkgcache="
# shellcheck disable=SC2086  # a list of options
apt-get -qq $apt_source update
# shellcheck disable=SC2086
(cd "$work/source" && apt-get -qq $apt_source source --download-only protobuf)
tree=$work/source/tree
dpkg-source --no-check -x "$work"/source/protobuf_*.dsc "$tree" > "$work/unpack.log" 2>&1 ||
  { tail -n 20 "$work/unpack.log" >&2; fail "the source package cannot be unpacked"; }
version=$(sed -n 's/^AC_INIT(\[Protocol Buffers\],\[\([0-9.]*\)\].*/\1/p' "$tree/configure.ac")

say "fetching protoc $version"
# The packaged compiler is as good as one built here, and saves four fifths of the build.
libraries=$(apt-cache depends protobuf-compiler | sed -n 's/^ *Depends: \(lib\(protoc\|protobuf\)[0-9][^ ]*\)$/\1/p')
[ -n "$libraries" ] || fail "the package protobuf-compiler is not known to apt"
libraries="$libraries $(apt-cache depends $libraries | sed -n 's/^ *Depends: \(libprotobuf[0-9][^ ]*\)$/\1/p')"
# shellcheck disable=SC2086
(cd "$work/source" && apt-get -qq -o APT::Sandbox::User=root download protobuf-compiler $libraries)
for package in "$work"/source/*.deb; do dpkg-deb -x "$package" "$work/debs"; done
mkdir -p "$work/out/bin"
cp "$work/debs/usr/bin/protoc" "$work/out/lib/protoc/protoc"
find "$work/debs/usr/lib" -name 'libproto*.so.*' -exec cp -P {} "$work/out/lib/protoc/" \;
cat > "$work/out/bin/protoc" <<'END'
#!/bin/sh
here=$(cd "$(dirname "$0")/../lib/protoc" && pwd)
LD_LIBRARY_PATH=$here${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} exec "$here/protoc" "$@"
END
chmod +x "$work/out/bin/protoc"
found=$("$work/out/bin/protoc" --version)
[ "${found#libprotoc }" = "$version" ] || fail "protoc is '$found', the library's source is $version"

say "fetching the ONNX format definition $onnx_version"
python3 -m pip --quiet --disable-pip-version-check download --no-deps --only-binary :all: \
  --dest "$work/wheel" "onnx==$onnx_version"
python3 - "$work"/wheel/onnx-*.whl "$work/out/proto" <<'END'
import sys, zipfile
wheel, folder = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive, open(folder + "/onnx-ml.proto", "wb") as out:
    out.write(archive.read("onnx/onnx-ml.proto"))
END

say "building protobuf-lite $version"
# As one unit, in a few seconds: the headers are most of what the compiler reads.
for name in $sources; do
  printf '#include "google/protobuf/%s.cc"\n' "$name"
  # Some sources leave the macros of port_def.inc defined.
  printf '#ifdef PROTOBUF_VERSION\n#include "google/protobuf/port_undef.inc"\n#endif\n'
done > "$work/lite.cc"
"$compiler" -std=c++17 -O1 -DNDEBUG -DHAVE_PTHREAD=1 -fPIC -fvisibility=hidden -fvisibility-inlines-hidden \
  -ffunction-sections -fdata-sections -w -I "$tree/src" -c "$work/lite.cc" -o "$work/lite.o" > "$work/build.log" 2>&1 ||
  { tail -n 20 "$work/build.log" >&2; fail "the build failed"; }
ar rcs "$work/out/lib/libprotobuf-lite.a" "$work/lite.o"
(cd "$tree/src" && find google/protobuf \( -name '*.h' -o -name '*.inc' \) -print0 |
  tar --null -T - -cf -) | (mkdir -p "$work/out/include" && tar -xf - -C "$work/out/include")
cp "$tree/LICENSE" "$work/out/LICENSE.protobuf"
echo "$stamp" > "$work/out/stamp"

rm -rf "$prefix"
mv "$work/out" "$prefix"
say "done: $prefix"
