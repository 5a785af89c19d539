#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# contrib/watch_engines.py on small wheels: what changed, what did not, and what is no wheel.
. "$srcdir/tests/tap.sh"

python=${PYTHON:-python3}
if ! "$python" -c 'import zipfile' 2>/dev/null; then
	echo '1..0 # SKIP no python'
	exit 0
fi
export PYTHONDONTWRITEBYTECODE=1
cd "$tmp" || exit 99
wheel() { # wheel FILE NAME=TEXT...: an archive of these files
	"$python" -c 'import sys, zipfile
with zipfile.ZipFile(sys.argv[1], "w") as z:
    for a in sys.argv[2:]:
        z.writestr(*a.split("=", 1))' "$@"
}
watch() { "$python" "$srcdir/contrib/watch_engines.py" "$@"; }
core=vllm/v1/core
two_lines='one
two'
wheel old.whl vllm/__init__.py= $core/block_pool.py=one $core/sched/scheduler.py="$two_lines" \
	$core/gone.py=one vllm/other.py=one $core/deep/er.py=one
wheel new.whl vllm/__init__.py= $core/block_pool.py=one $core/sched/scheduler.py=one \
	$core/sched/new.py=one vllm/other.py=two $core/deep/er.py=two
wheel sgl.whl sglang/__init__.py= sglang/srt/managers/scheduler.py=one
wheel empty.whl

watch old.whl new.whl >out
is 'something changed' $? 1
is 'each file with rules has a line, others have none' "$(cat out)" \
	"same                $core/block_pool.py
gone    +0 -1       $core/gone.py
new     +1 -0       $core/sched/new.py
changed +0 -1       $core/sched/scheduler.py"
is '--diff shows the changes' "$(watch --diff old.whl new.whl | grep -c '^-two$')" 1
ok 'nothing changed' watch old.whl old.whl
watch sgl.whl sgl.whl >out
is 'SGLang has files, too' "$(cat out)" 'same                sglang/srt/managers/scheduler.py'
refuses() { # refuses PATTERN WHEEL...
	pattern=$1
	shift
	! watch "$@" >out 2>&1 && grep -q "^watch_engines: $pattern" out
}
ok 'two engines are refused' refuses 'old.whl is vllm, sgl.whl is sglang; ' old.whl sgl.whl
ok 'what is no engine is refused' refuses 'empty.whl: neither vLLM nor SGLang; ' empty.whl old.whl
ok 'so is what is no wheel' refuses 'out: .*; name a wheel' out old.whl
ok '... and what is not there' refuses 'none.whl: .*; name a wheel' none.whl old.whl
finish
