/* SPDX-License-Identifier: Apache-2.0 */
/* The HTML report in its order: parts, and in them charts and tables.
 *
 * FIRST(name)		a statement of the first screen, charts/NAME.sql.
 * BESIDE(name)		a chart of a part: the first of them that has marks is in the first screen,
 *			its first panel alone.
 * PART(name, title, lacking)	a part; lacking: how to get it, if it has nothing to show.
 * FOLDED(...)		the same, folded.
 * TABLE(name)		the section of this name, see section_list.h.
 * QUERY(name, title)	a table of charts/NAME.sql.
 * CHART(name, title, geometry, x title, x scale, x least, y title, y scale, y least, flags):
 *			a chart of charts/NAME.sql; for geometry to flags see chart.h.
 * EACH(...)		the same for each run: the statement has the run as :each.
 *
 * {baseline} in a title stands for the name of the baseline.
 *
 * The statements may use the tables and parameters of sections, and run after all sections.
 * Columns of a chart are members of struct chart_mark by their names, geom by its name.  A column
 * that a statement lacks is NULL. */
FIRST(first_head)
TABLE(answer)
FIRST(first_rests)
FIRST(first_caption)
FIRST(first)
BESIDE(goodput)
BESIDE(pareto)
BESIDE(engine_step)
BESIDE(ratio)
BESIDE(cdf)

FOLDED(words, "In words", "no run")
TABLE(verdict)
TABLE(faster)
TABLE(assumptions)
TABLE(notes)

PART(engine, "Error against an engine",
     "the log of an engine, see attnreplay-import-engine(1), beside a dense run of its requests")
TABLE(engine)
CHART(engine_step, "Iterations, times faster than those of the engine that are like them", POINT,
      "ms of the engine's", LOG, 1e-3, NULL, LOG, 1e-3, 0)
TABLE(engine_step_error)
TABLE(engine_residual)
TABLE(engine_steps)

PART(error, "Error against latency", "a dense run beside sparse ones, with --accuracy above 0")
CHART(pareto,
      "Up and right is better; bars: 95 % intervals; rings: no other run is both as fast and "
      "as exact",
      POINT, "times faster than {baseline}", LOG, 0.01, "mean relative L2 error, %, less is up",
      LINEAR, 0, CHART_DOWN)
TABLE(accuracy)
TABLE(match)

PART(tasks, "Accuracy on tasks", "runs of attnreplay eval, dense and sparse")
CHART(eval, "Log-probability of the answers' tokens, less that of {baseline}; bars: 95 % intervals",
      POINT, "share of the attention that is executed", LINEAR, 0, "nats a token", LINEAR, NAN, 0)
TABLE(eval)
TABLE(eval_paired)
TABLE(eval_predict)
TABLE(eval_expected)

PART(latency, "Latency", "a run with requests that got all of their tokens")
CHART(cdf, "Share of the requests, or of the times between tokens, up to a latency", STEPS, "ms",
      LOG, 1e-3, NULL, LINEAR, 0, CHART_FREE_X)
TABLE(latency)
CHART(sessions,
      "Sessions: up and left is better; rings: no other run ends as many an hour and each as soon",
      POINT, "seconds to the end of a session, p50", LOG, 1e-3, "sessions an hour", LINEAR, 0, 0)
TABLE(sessions)
TABLE(turns)
TABLE(replicas)
TABLE(ranks)
TABLE(repeats)
TABLE(speedup)
TABLE(decodes)

PART(requests, "Each request against the baseline",
     "a dense run beside sparse ones, with the same options")
CHART(ratio, "TTFT of each request, times faster than {baseline}; lines: medians by length", POINT,
      "tokens of the prompt", LOG, 1, "times faster", LOG, 1e-3, CHART_WIDE)

PART(time, "Where the time goes", "a run that was measured, with --backend cuda or cpu")
CHART(phases, "Time by phase and time of no kernel; the attention core is hatched", BAR, NULL,
      LINEAR, 0, NULL, ROWS, 0, CHART_FREE_X)
TABLE(phases)
TABLE(halves)
TABLE(layer_time)
TABLE(layers)

PART(goodput, "Goodput", "limits, as in --slo ttft:500ms; for a curve, runs that differ in --rate")
CHART(goodput, "Requests that keep all limits, over the rate; bars: 95 % intervals; rings: 99 % do",
      LINE, "requests a second", LINEAR, 0, "%", LINEAR, 0, 0)
CHART(limits, "Requests that keep their limits; of all limits with 95 % intervals", GROUP, "%",
      LINEAR, 0, NULL, ROWS, 0, 0)
TABLE(goodput)

PART(timeline, "Timeline of iterations", "a run with iterations")
EACH(timeline, "Iterations; with the script, drag to zoom and double-click to go back", LINE,
     "seconds of virtual time", LINEAR, NAN, NULL, LINEAR, 0,
     CHART_FREE_Y | CHART_WIDE | CHART_LOW | CHART_ZOOM)
EACH(lanes, "Requests: in the queue, in prefill (hatched), in decode", SPAN,
     "seconds of virtual time", LINEAR, NAN, NULL, ROWS, 0, CHART_WIDE | CHART_LOW | CHART_ZOOM)
TABLE(steady)

PART(chunk, "Chunk size", "runs that differ in --max-num-batched-tokens")
CHART(chunk, "Over --max-num-batched-tokens", LINE, "tokens of an iteration", LOG, 1, NULL, LINEAR,
      0, CHART_FREE_Y)

PART(selected, "What is selected, by layer and head",
     "a sparse run with --accuracy above 0; for one chunk and its blocks: attnreplay select "
     "--svg FILE")
CHART(heat_selected, "Selected share of the blocks before the chunk", CELL, "KV head", LINEAR, NAN,
      "layer", LINEAR, NAN, 0)
CHART(heat_recall, "Share of the true attention that is not in what is selected", CELL,
      "query head", LINEAR, NAN, "layer", LINEAR, NAN, 0)

PART(density, "Density", "a run with --accuracy above 0, or one with a dropper")
CHART(density, "Share of what dense attention looks at, after each step", POINT, NULL, LINEAR, 0,
      NULL, ROWS, 0, CHART_WIDE)
TABLE(density)
TABLE(drops)
TABLE(revived)
TABLE(kept)
TABLE(hot_buffer)

PART(measured, "How it was measured", "no run")
TABLE(runs)
TABLE(device)
TABLE(memory)
TABLE(outcome)
TABLE(kv_groups)
TABLE(costs)
TABLE(energy)
QUERY(measured, "Each run")
