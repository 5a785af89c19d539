-- SPDX-License-Identifier: Apache-2.0
SELECT * FROM engine_error
ORDER BY run, engine_run, instr('ttft tpot', metric), at
