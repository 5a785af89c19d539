-- SPDX-License-Identifier: Apache-2.0
SELECT * FROM v_metrics_aiperf WHERE :run IS NULL OR run_id = :run
