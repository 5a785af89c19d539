SELECT * FROM v_metrics_vllm WHERE :run IS NULL OR run_id = :run
