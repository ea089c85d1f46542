CREATE TABLE @.version (number int NOT NULL);
INSERT INTO @.version VALUES (0);

-- One row for each rule and key. Only the primary key is indexed, so that updates stay in their page.
CREATE TABLE @.counter (
  id bytea PRIMARY KEY,
  rule text NOT NULL,
  key text NOT NULL,
  limits text NOT NULL,
  -- Of each limit, in their order. Of a window, what is used and when it began, or when its calendar period
  -- ends. Of a bucket, when it is full, and what is left of a microsecond then. Of a total, what is used. Of
  -- limits with entries, what is used, the first entry that counts, and where the entries are. Of holds, what
  -- is held. Nothing is used where `used` is null.
  used bigint[] NOT NULL,
  marks bigint[] NOT NULL,
  logs bigint[] NOT NULL,
  -- The number of the next entry.
  seq bigint NOT NULL,
  -- How many holds there are, and the bounds of their latest renewals.
  holds bigint NOT NULL,
  oldest bigint NOT NULL,
  newest bigint NOT NULL,
  -- From when on the row says no more than none; never if this is null.
  idle_at bigint
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- What was taken. Under 0: one row for each take and key, for all sliding limits there. Under a number above
-- 0: one row for each slot of a limit with slots. Below 0: one row for each failure on a ladder.
CREATE TABLE @.entry (
  counter bytea NOT NULL,
  log bigint NOT NULL,
  seq bigint NOT NULL,
  at bigint NOT NULL,
  ticket bigint NOT NULL,
  cost bigint NOT NULL,
  PRIMARY KEY (counter, log, seq)
) WITH (autovacuum_vacuum_scale_factor = 0.05);

CREATE TABLE @.hold (
  counter bytea NOT NULL,
  id text NOT NULL,
  ticket bigint NOT NULL,
  weight bigint NOT NULL,
  since bigint NOT NULL,
  renewed bigint NOT NULL,
  PRIMARY KEY (counter, id)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);

-- What was refunded, so that nothing is refunded twice.
CREATE TABLE @.spent (
  counter bytea NOT NULL,
  ticket bigint NOT NULL,
  taken_at bigint NOT NULL,
  until bigint NOT NULL,
  PRIMARY KEY (counter, ticket, taken_at)
);
-- Marks never change, so that a second index costs no update.
CREATE INDEX spent_until ON @.spent (until);

-- When counters of a rule were last forgotten, and of all rules under `%`.
CREATE TABLE @.forgotten (
  rule text PRIMARY KEY,
  at bigint NOT NULL
);

CREATE TABLE @.secret (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  bytes bytea NOT NULL
);

-- Who took when how much, for people.
CREATE VIEW @.send_log AS
  SELECT c.rule, c.key, to_timestamp(e.at / 1000000.0) AS at, e.cost, lpad(to_hex(e.ticket), 16, '0') AS ticket
  FROM @.entry e JOIN @.counter c ON c.id = e.counter WHERE e.log = 0;

-- A duration as limits write it, in microseconds.
CREATE FUNCTION @.micros(span text) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE span WHEN 's' THEN 1000000 WHEN 'min' THEN 60000000 WHEN 'hour' THEN 3600000000
    WHEN 'day' THEN 86400000000 WHEN 'week' THEN 604800000000
    ELSE (SELECT sum(m[1]::bigint * CASE m[2] WHEN 'w' THEN 604800000000 WHEN 'd' THEN 86400000000
      WHEN 'h' THEN 3600000000 WHEN 'm' THEN 60000000 WHEN 's' THEN 1000000 WHEN 'ms' THEN 1000 ELSE 1 END)
      FROM regexp_matches(span, '(\d+)(w|d|h|ms|us|m|s)', 'g') m)::bigint END
$$;

-- Every limit at every key, for people: how much of it is used at this moment, and from when on nothing is.
CREATE VIEW @.limits AS
  SELECT c.rule, c.key, l.text AS "limit", l.most, greatest(v.used, 0) AS used,
    CASE WHEN v.used > 0 THEN to_timestamp(v.until / 1000000.0) END AS until
  FROM @.counter c
  CROSS JOIN LATERAL (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now) t
  CROSS JOIN LATERAL (SELECT u.*,
      coalesce(substring(u.text FROM ' burst (\d+)'), substring(u.text FROM '^\d+'),
        substring(u.text FROM '.* then (\d+)'), substring(u.text FROM '^ladder (\d+)'))::bigint AS most,
      @.micros(substring(u.text FROM '^\d+/([a-z0-9]+)')) AS period,
      @.micros(substring(u.text FROM ' sliding by ([a-z0-9]+)')) AS slot,
      @.micros(substring(u.text FROM ' at once for ([a-z0-9]+)')) AS lease
    FROM ROWS FROM (unnest(string_to_array(c.limits, ', ')), unnest(c.used), unnest(c.marks), unnest(c.logs))
      u(text, used, mark, log)) l
  CROSS JOIN LATERAL (
    SELECT CASE WHEN l.mark > t.now THEN l.used ELSE 0 END AS used, l.mark AS until WHERE l.text ~ ' calendar'
    UNION ALL SELECT sum(e.cost)::bigint, max(e.at) + l.period + coalesce(l.slot, 0) FROM @.entry e
      WHERE e.counter = c.id AND e.log = l.log AND e.seq >= l.mark
      AND e.at + l.period + coalesce(l.slot, 0) > t.now HAVING l.text ~ ' sliding'
    UNION ALL SELECT least(ceil((l.mark - t.now)::numeric * substring(l.text FROM '^\d+')::bigint / l.period), l.most)::bigint,
      l.mark WHERE l.text ~ ' burst '
    UNION ALL SELECT sum(h.weight)::bigint, max(h.renewed) + l.lease FROM @.hold h
      WHERE h.counter = c.id AND h.renewed >= c.oldest AND (l.lease IS NULL OR h.renewed + l.lease > t.now)
      HAVING l.text ~ ' at once'
    UNION ALL SELECT CASE WHEN c.idle_at IS NULL OR c.idle_at > t.now THEN l.used END, c.idle_at
      WHERE l.text ~ '^ladder '
    UNION ALL SELECT l.used, NULL WHERE l.text ~ ' in total$'
    UNION ALL SELECT CASE WHEN l.mark + l.period > t.now THEN l.used ELSE 0 END, l.mark + l.period
      WHERE l.text ~ '^\d+/[a-z0-9]+$') v;

-- What is set at run time: a map for each namespace. A row without bytes is an entry that was removed,
-- kept for as long as a node may ask what has changed.
CREATE TABLE @.record_space (
  space text PRIMARY KEY,
  version bigint NOT NULL,
  size bigint NOT NULL
);

CREATE TABLE @.record (
  space text NOT NULL,
  name text NOT NULL,
  bytes bytea,
  until bigint,
  version bigint NOT NULL,
  PRIMARY KEY (space, name)
);
CREATE INDEX record_version ON @.record (space, version);
CREATE INDEX record_removed ON @.record (space, version) WHERE bytes IS NULL;
CREATE INDEX record_until ON @.record (space, until) WHERE until IS NOT NULL;

-- What every decision runs is in functions, because a session plans their statements once. They decide
-- nothing. Each statement in them sees what was committed before it began, so that the counters are read
-- after their locks were taken. They never scan whole tables, whatever size those had when it was planned,
-- and one plan fits all calls. All locks together are waited for no longer than the first time-out: a caller
-- that has given up must not go on to lock what others need.
CREATE FUNCTION @.lock_and_load(time_outs text[], locks bigint[], ids bytea[], own_time bigint)
RETURNS TABLE (now bigint, id bytea, limits text, used bigint[], marks bigint[], logs bigint[], seq bigint,
  holds bigint, oldest bigint, newest bigint)
LANGUAGE plpgsql VOLATILE SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  one bigint;
  t bigint;
  patience bigint;
BEGIN
  PERFORM set_config('lock_timeout', time_outs[1], true), set_config('statement_timeout', time_outs[2], true),
    set_config('idle_in_transaction_session_timeout', time_outs[3], true);
  FOREACH one IN ARRAY locks LOOP
    IF NOT pg_try_advisory_xact_lock(one) THEN
      patience := time_outs[1]::bigint - extract(epoch FROM clock_timestamp() - statement_timestamp()) * 1000;
      PERFORM set_config('lock_timeout', greatest(patience, 1)::text, true);
      PERFORM pg_advisory_xact_lock(one);
    END IF;
  END LOOP;
  t := coalesce(own_time, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);
  RETURN QUERY SELECT t, NULL::bytea, NULL::text, NULL::bigint[], NULL::bigint[], NULL::bigint[], NULL::bigint,
    NULL::bigint, NULL::bigint, NULL::bigint;
  RETURN QUERY SELECT t, c.id, c.limits, c.used, c.marks, c.logs, c.seq, c.holds, c.oldest, c.newest
    FROM @.counter c WHERE c.id = ANY(ids);
END $$;

-- Of every limit with entries: the oldest that count, and the newest; of ladders, also how many there are.
CREATE FUNCTION @.oldest_entries(ids bytea[], most bigint, ladders boolean)
RETURNS TABLE (counter bytea, place bigint, part bigint, seq bigint, at bigint, ticket bigint, cost bigint)
LANGUAGE plpgsql VOLATILE SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY SELECT c.id, l.n, e.part, e.seq, e.at, e.ticket, e.cost
    FROM unnest(ids) k(id) JOIN @.counter c ON c.id = k.id
    CROSS JOIN LATERAL unnest(c.logs, c.marks) WITH ORDINALITY l(log, born, n)
    CROSS JOIN LATERAL (
      (SELECT 0::bigint AS part, x.seq, x.at, x.ticket, x.cost FROM @.entry x
        WHERE x.counter = c.id AND x.log = l.log AND x.seq >= l.born ORDER BY x.seq LIMIT most)
      UNION ALL (SELECT 0, x.seq, x.at, x.ticket, x.cost FROM @.entry x
        WHERE x.counter = c.id AND x.log = l.log AND x.seq >= l.born ORDER BY x.seq DESC LIMIT 1)) e
    WHERE l.log IS NOT NULL;
  IF ladders THEN
    RETURN QUERY SELECT c.id, l.n, 1::bigint, e.count, 0::bigint, 0::bigint, 0::bigint
      FROM unnest(ids) k(id) JOIN @.counter c ON c.id = k.id
      CROSS JOIN LATERAL unnest(c.logs, c.marks) WITH ORDINALITY l(log, born, n)
      CROSS JOIN LATERAL (SELECT count(*) FROM @.entry x
        WHERE x.counter = c.id AND x.log = l.log AND x.seq >= l.born) e
      WHERE l.log < 0;
  END IF;
END $$;

-- Of single limits: what the entries up to a moment come to, and the oldest after it.
CREATE FUNCTION @.live_entries(ids bytea[], places bigint[], cutoffs bigint[], mosts bigint[])
RETURNS TABLE (counter bytea, place bigint, part bigint, seq bigint, at bigint, ticket bigint, cost bigint)
LANGUAGE plpgsql VOLATILE SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY SELECT c.id, k.place, e.part, e.seq, e.at, e.ticket, e.cost
    FROM unnest(ids, places, cutoffs, mosts) k(id, place, cutoff, most) JOIN @.counter c ON c.id = k.id
    CROSS JOIN LATERAL (SELECT x.seq AS first FROM @.entry x WHERE x.counter = c.id
      AND x.log = c.logs[k.place] AND x.seq >= c.marks[k.place] AND x.at > k.cutoff ORDER BY x.seq LIMIT 1) f
    CROSS JOIN LATERAL (
      SELECT 2::bigint AS part, f.first AS seq, max(x.at) AS at, 0::bigint AS ticket, sum(x.cost)::bigint AS cost
        FROM @.entry x WHERE x.counter = c.id AND x.log = c.logs[k.place] AND x.seq >= c.marks[k.place]
        AND x.seq < f.first HAVING count(*) > 0
      UNION ALL (SELECT 0, x.seq, x.at, x.ticket, x.cost FROM @.entry x WHERE x.counter = c.id
        AND x.log = c.logs[k.place] AND x.seq >= f.first ORDER BY x.seq LIMIT k.most)) e;
END $$;

-- Of single limits: the entry of a ticket, or with a number; of ladders, also what the entries up to it come
-- to, or up to a moment if there is none.
CREATE FUNCTION @.own_entries(ids bytea[], places bigint[], seqs bigint[], own_ticket bigint, taken_at bigint)
RETURNS TABLE (counter bytea, place bigint, part bigint, seq bigint, at bigint, ticket bigint, cost bigint)
LANGUAGE plpgsql VOLATILE SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY SELECT c.id, k.place, e.part, e.seq, e.at, e.ticket, e.cost
    FROM unnest(ids, places, seqs) k(id, place, seq) JOIN @.counter c ON c.id = k.id
    LEFT JOIN LATERAL (SELECT x.seq, x.at, x.ticket, x.cost FROM @.entry x
      WHERE x.counter = c.id AND x.log = c.logs[k.place] AND x.seq >= c.marks[k.place]
      AND (k.seq IS NULL AND x.ticket = own_ticket OR x.seq = k.seq) ORDER BY x.seq DESC LIMIT 1) o ON true
    CROSS JOIN LATERAL (
      SELECT 0::bigint AS part, o.seq, o.at, o.ticket, o.cost WHERE o.seq IS NOT NULL
      UNION ALL SELECT 3, max(x.seq), max(x.at), 0, sum(x.cost)::bigint FROM @.entry x
        WHERE c.logs[k.place] < 0 AND x.counter = c.id AND x.log = c.logs[k.place]
        AND x.seq >= c.marks[k.place] AND (x.seq <= o.seq OR o.seq IS NULL AND x.at <= taken_at)
        HAVING count(*) > 0) e;
END $$;

CREATE FUNCTION @.put_counters(ids bytea[], rules text[], keys text[], all_limits text[], useds text[],
  markss text[], logss text[], seqs bigint[], holdss bigint[], oldests bigint[], newests bigint[],
  idle_ats bigint[])
RETURNS void LANGUAGE plpgsql VOLATILE SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
  INSERT INTO @.counter AS c (id, rule, key, limits, used, marks, logs, seq, holds, oldest, newest, idle_at)
    SELECT u.id, u.rule, u.key, u.limits, u.used::bigint[], u.marks::bigint[], u.logs::bigint[], u.seq, u.holds,
      u.oldest, u.newest, u.idle_at
    FROM unnest(ids, rules, keys, all_limits, useds, markss, logss, seqs, holdss, oldests, newests, idle_ats)
      u(id, rule, key, limits, used, marks, logs, seq, holds, oldest, newest, idle_at)
    ON CONFLICT (id) DO UPDATE SET limits = excluded.limits, used = excluded.used, marks = excluded.marks,
      logs = excluded.logs, seq = excluded.seq, holds = excluded.holds, oldest = excluded.oldest,
      newest = excluded.newest, idle_at = excluded.idle_at;
END $$;

CREATE FUNCTION @.put_entries(counters bytea[], logs bigint[], seqs bigint[], ats bigint[], tickets bigint[],
  costs bigint[])
RETURNS void LANGUAGE plpgsql VOLATILE SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
  INSERT INTO @.entry AS e (counter, log, seq, at, ticket, cost)
    SELECT u.* FROM unnest(counters, logs, seqs, ats, tickets, costs) u
    ON CONFLICT (counter, log, seq) DO UPDATE SET at = excluded.at, ticket = excluded.ticket, cost = excluded.cost;
END $$;

-- Removes entries that no longer count, a few at a time: the rest goes with the next takes, or when the
-- counter is swept.
CREATE FUNCTION @.drop_entries(counters bytea[], logs bigint[], belows bigint[], most bigint)
RETURNS void LANGUAGE plpgsql VOLATILE SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
  DELETE FROM @.entry e WHERE e.ctid = ANY (ARRAY(
    SELECT x.tid FROM unnest(counters, logs, belows) d(counter, log, below)
    CROSS JOIN LATERAL (SELECT y.ctid AS tid FROM @.entry y WHERE y.counter = d.counter AND y.log = d.log
      AND y.seq < d.below ORDER BY y.seq LIMIT most) x));
END $$;

-- Removes counters with all that belongs to them, so many rows of each table at a time and the oldest entries
-- first, so that what is left can be read at any time.
CREATE FUNCTION @.remove_counters(ids bytea[], most bigint)
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
  DELETE FROM @.counter c WHERE c.id = ANY(ids) AND NOT EXISTS (SELECT FROM @.entry e WHERE e.counter = c.id)
    AND NOT EXISTS (SELECT FROM @.hold h WHERE h.counter = c.id);
  GET DIAGNOSTICS removed = ROW_COUNT;
  more := entries = most OR holds = most;
  RETURN NEXT;
END $$;
