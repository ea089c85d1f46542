-- The same functions as before, except that they look up each counter by its id, whatever size the tables had when
-- their statements were planned. The server keeps a plan as long as the connection lasts, and a plan for small tables
-- may read a table as a whole. `OFFSET 0` keeps the planner from turning the lookups into a join.

CREATE OR REPLACE FUNCTION @.oldest_entries(ids bytea[], most bigint, ladders boolean)
RETURNS TABLE (counter bytea, place bigint, part bigint, seq bigint, at bigint, ticket bigint, cost bigint)
LANGUAGE plpgsql VOLATILE SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY SELECT c.id, l.n, e.part, e.seq, e.at, e.ticket, e.cost
    FROM unnest(ids) k(id)
    CROSS JOIN LATERAL (SELECT x.id, x.logs, x.marks FROM @.counter x WHERE x.id = k.id OFFSET 0) c
    CROSS JOIN LATERAL unnest(c.logs, c.marks) WITH ORDINALITY l(log, born, n)
    CROSS JOIN LATERAL (
      (SELECT 0::bigint AS part, x.seq, x.at, x.ticket, x.cost FROM @.entry x
        WHERE x.counter = c.id AND x.log = l.log AND x.seq >= l.born ORDER BY x.seq LIMIT most)
      UNION ALL (SELECT 0, x.seq, x.at, x.ticket, x.cost FROM @.entry x
        WHERE x.counter = c.id AND x.log = l.log AND x.seq >= l.born ORDER BY x.seq DESC LIMIT 1)) e
    WHERE l.log IS NOT NULL;
  IF ladders THEN
    RETURN QUERY SELECT c.id, l.n, 1::bigint, e.count, 0::bigint, 0::bigint, 0::bigint
      FROM unnest(ids) k(id)
      CROSS JOIN LATERAL (SELECT x.id, x.logs, x.marks FROM @.counter x WHERE x.id = k.id OFFSET 0) c
      CROSS JOIN LATERAL unnest(c.logs, c.marks) WITH ORDINALITY l(log, born, n)
      CROSS JOIN LATERAL (SELECT count(*) FROM @.entry x
        WHERE x.counter = c.id AND x.log = l.log AND x.seq >= l.born) e
      WHERE l.log < 0;
  END IF;
END $$;

CREATE OR REPLACE FUNCTION @.live_entries(ids bytea[], places bigint[], cutoffs bigint[], mosts bigint[])
RETURNS TABLE (counter bytea, place bigint, part bigint, seq bigint, at bigint, ticket bigint, cost bigint)
LANGUAGE plpgsql VOLATILE SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY SELECT c.id, k.place, e.part, e.seq, e.at, e.ticket, e.cost
    FROM unnest(ids, places, cutoffs, mosts) k(id, place, cutoff, most)
    CROSS JOIN LATERAL (SELECT x.id, x.logs, x.marks FROM @.counter x WHERE x.id = k.id OFFSET 0) c
    CROSS JOIN LATERAL (SELECT x.seq AS first FROM @.entry x WHERE x.counter = c.id
      AND x.log = c.logs[k.place] AND x.seq >= c.marks[k.place] AND x.at > k.cutoff ORDER BY x.seq LIMIT 1) f
    CROSS JOIN LATERAL (
      SELECT 2::bigint AS part, f.first AS seq, max(x.at) AS at, 0::bigint AS ticket, sum(x.cost)::bigint AS cost
        FROM @.entry x WHERE x.counter = c.id AND x.log = c.logs[k.place] AND x.seq >= c.marks[k.place]
        AND x.seq < f.first HAVING count(*) > 0
      UNION ALL (SELECT 0, x.seq, x.at, x.ticket, x.cost FROM @.entry x WHERE x.counter = c.id
        AND x.log = c.logs[k.place] AND x.seq >= f.first ORDER BY x.seq LIMIT k.most)) e;
END $$;

CREATE OR REPLACE FUNCTION @.own_entries(ids bytea[], places bigint[], seqs bigint[], own_ticket bigint, taken_at bigint)
RETURNS TABLE (counter bytea, place bigint, part bigint, seq bigint, at bigint, ticket bigint, cost bigint)
LANGUAGE plpgsql VOLATILE SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY SELECT c.id, k.place, e.part, e.seq, e.at, e.ticket, e.cost
    FROM unnest(ids, places, seqs) k(id, place, seq)
    CROSS JOIN LATERAL (SELECT x.id, x.logs, x.marks FROM @.counter x WHERE x.id = k.id OFFSET 0) c
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

CREATE OR REPLACE FUNCTION @.remove_counters(ids bytea[], most bigint)
RETURNS TABLE (removed bigint, more boolean)
LANGUAGE plpgsql VOLATILE SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  entries bigint;
  holds bigint;
BEGIN
  DELETE FROM @.entry e WHERE e.ctid = ANY (ARRAY(SELECT x.tid FROM unnest(ids) k(id)
    CROSS JOIN LATERAL (SELECT y.ctid AS tid FROM @.entry y WHERE y.counter = k.id ORDER BY y.log, y.seq LIMIT most) x
    LIMIT most));
  GET DIAGNOSTICS entries = ROW_COUNT;
  DELETE FROM @.hold h WHERE h.ctid = ANY (ARRAY(SELECT x.tid FROM unnest(ids) k(id)
    CROSS JOIN LATERAL (SELECT y.ctid AS tid FROM @.hold y WHERE y.counter = k.id ORDER BY y.id LIMIT most) x
    LIMIT most));
  GET DIAGNOSTICS holds = ROW_COUNT;
  DELETE FROM @.counter c WHERE c.id = ANY(ids)
    AND NOT EXISTS (SELECT FROM @.entry e WHERE e.counter = c.id OFFSET 0)
    AND NOT EXISTS (SELECT FROM @.hold h WHERE h.counter = c.id OFFSET 0);
  GET DIAGNOSTICS removed = ROW_COUNT;
  more := entries = most OR holds = most;
  RETURN NEXT;
END $$;
