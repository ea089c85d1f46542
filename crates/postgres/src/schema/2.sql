-- When a node last began to remove idle rows, so that of many nodes only one looks at all rows.
CREATE TABLE @.swept (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  at bigint NOT NULL
);
INSERT INTO @.swept (at) VALUES (0);

-- The same as the older function of this name, except that a caller who does not wait is told which locks others
-- have: as `used` of the first row, which is no counter's.
CREATE FUNCTION @.lock_and_load(time_outs text[], locks bigint[], ids bytea[], own_time bigint, waits boolean)
RETURNS TABLE (now bigint, id bytea, limits text, used bigint[], marks bigint[], logs bigint[], seq bigint,
  holds bigint, oldest bigint, newest bigint)
LANGUAGE plpgsql VOLATILE SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  one bigint;
  t bigint;
  patience bigint;
  taken bigint[] := '{}';
BEGIN
  PERFORM set_config('lock_timeout', time_outs[1], true), set_config('statement_timeout', time_outs[2], true),
    set_config('idle_in_transaction_session_timeout', time_outs[3], true);
  FOREACH one IN ARRAY locks LOOP
    CONTINUE WHEN pg_try_advisory_xact_lock(one);
    IF waits THEN
      patience := time_outs[1]::bigint - extract(epoch FROM clock_timestamp() - statement_timestamp()) * 1000;
      PERFORM set_config('lock_timeout', greatest(patience, 1)::text, true);
      PERFORM pg_advisory_xact_lock(one);
    ELSE
      taken := taken || one;
    END IF;
  END LOOP;
  t := coalesce(own_time, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);
  RETURN QUERY SELECT t, NULL::bytea, NULL::text, taken, NULL::bigint[], NULL::bigint[], NULL::bigint,
    NULL::bigint, NULL::bigint, NULL::bigint;
  RETURN QUERY SELECT t, c.id, c.limits, c.used, c.marks, c.logs, c.seq, c.holds, c.oldest, c.newest
    FROM @.counter c WHERE c.id = ANY(ids);
END $$;
