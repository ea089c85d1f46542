-- The two functions that every decision calls. They take and return text and plain numbers, so that the server
-- parses, plans and answers each call with little work.

-- Locks counters and reads them. The first line has the server's time, and the locks that others have if the
-- caller does not wait for them. Each line after it is a counter. No row of ours is as long as what is cut here;
-- a longer row of another program is found to be damaged. All locks together are waited for no longer than the first
-- time-out.
CREATE FUNCTION @.lock_and_read(time_outs text[], locks bigint[], ids bytea[], own_time bigint, waits boolean)
RETURNS SETOF text
LANGUAGE plpgsql VOLATILE SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  one bigint;
  patience bigint;
  now_set text;
  taken bigint[] := '{}';
BEGIN
  -- An assignment costs less than PERFORM, which runs a query.
  now_set := set_config('lock_timeout', time_outs[1], true) || set_config('statement_timeout', time_outs[2], true)
    || set_config('idle_in_transaction_session_timeout', time_outs[3], true);
  FOREACH one IN ARRAY locks LOOP
    CONTINUE WHEN pg_try_advisory_xact_lock(one);
    IF waits THEN
      patience := time_outs[1]::bigint - extract(epoch FROM clock_timestamp() - statement_timestamp()) * 1000;
      now_set := set_config('lock_timeout', greatest(patience, 1)::text, true);
      PERFORM pg_advisory_xact_lock(one);
    ELSE
      taken := taken || one;
    END IF;
  END LOOP;
  RETURN NEXT concat_ws(' ', coalesce(own_time, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint), taken);
  RETURN QUERY SELECT concat_ws(' ', encode(c.id, 'hex'), c.used[:1000], c.marks[:1000], c.logs[:1000], c.seq,
    c.holds, c.oldest, c.newest, left(c.limits, 65536)) FROM @.counter c WHERE c.id = ANY(ids);
END $$;

-- Changes counters whose limits stay the same. Each is looked up by its id, whatever size the table had when this
-- was planned.
CREATE FUNCTION @.update_counters(ids bytea[], useds text[], markss text[], seqs bigint[], holdss bigint[],
  oldests bigint[], newests bigint[], idle_ats bigint[])
RETURNS void LANGUAGE plpgsql VOLATILE SET enable_seqscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
  UPDATE @.counter c SET used = u.used::bigint[], marks = u.marks::bigint[], seq = u.seq, holds = u.holds,
      oldest = u.oldest, newest = u.newest, idle_at = u.idle_at
    FROM unnest(ids, useds, markss, seqs, holdss, oldests, newests, idle_ats)
      u(id, used, marks, seq, holds, oldest, newest, idle_at)
    WHERE c.id = u.id;
END $$;

-- Finds what a ticket took without reading the whole log. Takes and failures never change, so that a second index
-- costs no update.
CREATE INDEX entry_ticket ON @.entry (counter, ticket) WHERE log <= 0;

-- The same as before, except that the entry of a ticket is looked up by the ticket. `OFFSET 0` keeps the planner
-- from looking through the log for it.
CREATE OR REPLACE FUNCTION @.own_entries(ids bytea[], places bigint[], seqs bigint[], own_ticket bigint, taken_at bigint)
RETURNS TABLE (counter bytea, place bigint, part bigint, seq bigint, at bigint, ticket bigint, cost bigint)
LANGUAGE plpgsql VOLATILE SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY SELECT c.id, k.place, e.part, e.seq, e.at, e.ticket, e.cost
    FROM unnest(ids, places, seqs) k(id, place, seq) JOIN @.counter c ON c.id = k.id
    LEFT JOIN LATERAL (
      (SELECT y.seq, y.at, y.ticket, y.cost FROM (SELECT x.log, x.seq, x.at, x.ticket, x.cost FROM @.entry x
        WHERE x.counter = c.id AND x.ticket = own_ticket AND x.log <= 0 OFFSET 0) y
        WHERE k.seq IS NULL AND y.log = c.logs[k.place] AND y.seq >= c.marks[k.place] ORDER BY y.seq DESC LIMIT 1)
      UNION ALL SELECT x.seq, x.at, x.ticket, x.cost FROM @.entry x
        WHERE x.counter = c.id AND x.log = c.logs[k.place] AND x.seq >= c.marks[k.place] AND x.seq = k.seq) o ON true
    CROSS JOIN LATERAL (
      SELECT 0::bigint AS part, o.seq, o.at, o.ticket, o.cost WHERE o.seq IS NOT NULL
      UNION ALL SELECT 3, max(x.seq), max(x.at), 0, sum(x.cost)::bigint FROM @.entry x
        WHERE c.logs[k.place] < 0 AND x.counter = c.id AND x.log = c.logs[k.place]
        AND x.seq >= c.marks[k.place] AND (x.seq <= o.seq OR o.seq IS NULL AND x.at <= taken_at)
        HAVING count(*) > 0) e;
END $$;
