# SPDX-License-Identifier: Apache-2.0
# A stand-in for vLLM and PyTorch in $tmp/fake: what all scripts of contrib/ that drive vLLM need of
# them.  A test adds the engine.  . "$srcdir/tests/fake_vllm.sh" behind tap.sh.

python=${PYTHON:-python3}
if ! "$python" -c 'import json, dataclasses, asyncio' 2>/dev/null; then
	echo '1..0 # SKIP no python'
	exit 0
fi
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$tmp/fake"
fake=$tmp/fake/vllm

packages() { # packages NAME...: empty ones, in vllm
	for p in "$@"; do
		mkdir -p "$fake/$p"
		: >"$fake/$p/__init__.py"
	done
}
# Each sleep moves the clock, and each look at it by a microsecond: no time depends on the machine.
fake_clock() {
	cat >"$tmp/fake/sitecustomize.py" <<-'E'
		import time
		now = 0.0
		def sleep(s):
		    global now
		    now += s
		def perf_counter():
		    sleep(1e-6)
		    return now
		time.sleep, time.perf_counter = sleep, perf_counter
	E
}

mkdir -p "$tmp/fake/torch"
packages engine v1 v1/engine
echo '__version__ = "2"' >"$tmp/fake/torch/__init__.py"
cat >"$fake/__init__.py" <<'E'
from vllm.sampling_params import SamplingParams
__version__ = "0.24.0"
E
cat >"$fake/sampling_params.py" <<'E'
class RequestOutputKind:
    DELTA = 1
class SamplingParams:
    def __init__(self, max_tokens, ignore_eos, temperature, detokenize, output_kind):
        assert ignore_eos and temperature == 0 and not detokenize and output_kind == 1
        self.max_tokens = max_tokens
E
cat >"$fake/engine/arg_utils.py" <<'E'
class EngineArgs:
    def __init__(self, **k): self.__dict__.update(k)
AsyncEngineArgs = EngineArgs
E
# The configuration of an engine with arguments a.
cat >"$fake/config.py" <<'E'
from types import SimpleNamespace as NS
def config_of(a, sizes, blocks, layers=None):
    return NS(scheduler_config=NS(async_scheduling=a.async_scheduling, max_num_seqs=a.max_num_seqs,
            max_num_batched_tokens=a.max_num_batched_tokens),
        compilation_config=NS(cudagraph_capture_sizes=sizes, static_forward_context=layers or {}),
        cache_config=NS(block_size=16, num_gpu_blocks=blocks),
        model_config=NS(model=a.model, get_vocab_size=lambda: 1000,
            max_model_len=getattr(a, "max_model_len", None)))
E
