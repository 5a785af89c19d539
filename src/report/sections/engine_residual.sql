-- SPDX-License-Identifier: Apache-2.0
SELECT run, engine_run, quantity, n, us_each, explains_percent, adds_percent FROM engine_residual
ORDER BY run, engine_run, no
