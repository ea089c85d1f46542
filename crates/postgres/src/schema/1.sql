CREATE TABLE @.version (number int NOT NULL);
INSERT INTO @.version VALUES (0);

-- One row for each rule and key. Only the primary key is indexed, so that updates stay in their page.
CREATE TABLE @.counter (
  id bytea PRIMARY KEY,
  rule text NOT NULL,
  key text NOT NULL,
  limits text NOT NULL,
  states bytea NOT NULL,
  -- Of each sliding limit: the first entry that counts, and how much is used.
  born bigint[] NOT NULL,
  used bigint[] NOT NULL,
  -- The number of the next entry.
  seq bigint NOT NULL,
  -- How many holds there are, their weight, and the bounds of their latest renewals.
  holds bigint NOT NULL,
  held bigint NOT NULL,
  oldest bigint NOT NULL,
  newest bigint NOT NULL,
  -- From when on the row says no more than none; never if this is null.
  idle_at bigint
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- What was taken under sliding limits: one row for each take and key.
CREATE TABLE @.entry (
  counter bytea NOT NULL,
  seq bigint NOT NULL,
  at bigint NOT NULL,
  ticket bigint NOT NULL,
  cost bigint NOT NULL,
  PRIMARY KEY (counter, seq)
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

-- What was given back, so that nothing is twice.
CREATE TABLE @.spent (
  counter bytea NOT NULL,
  ticket bigint NOT NULL,
  taken_at bigint NOT NULL,
  until bigint NOT NULL,
  PRIMARY KEY (counter, ticket, taken_at)
);
-- Marks never change, so that a second index costs no update.
CREATE INDEX spent_until ON @.spent (until);

-- When counters of a rule were last forgotten, and of all rules under `*`.
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
  FROM @.entry e JOIN @.counter c ON c.id = e.counter;

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
-- and one plan fits all calls.
CREATE FUNCTION @.lock_and_load(time_outs text[], locks bigint[], ids bytea[], own_time bigint)
RETURNS TABLE (now bigint, id bytea, limits text, states bytea, born bigint[], used bigint[], seq bigint,
  holds bigint, held bigint, oldest bigint, newest bigint, last_at bigint)
LANGUAGE plpgsql VOLATILE SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  one bigint;
  t bigint;
BEGIN
  PERFORM set_config('lock_timeout', time_outs[1], true), set_config('statement_timeout', time_outs[2], true),
    set_config('idle_in_transaction_session_timeout', time_outs[3], true);
  FOREACH one IN ARRAY locks LOOP
    PERFORM pg_advisory_xact_lock(one);
  END LOOP;
  t := coalesce(own_time, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);
  RETURN QUERY SELECT t, NULL::bytea, NULL::text, NULL::bytea, NULL::bigint[], NULL::bigint[], NULL::bigint,
    NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint;
  RETURN QUERY SELECT t, c.id, c.limits, c.states, c.born, c.used, c.seq, c.holds, c.held, c.oldest, c.newest,
    (SELECT e.at FROM @.entry e WHERE cardinality(c.born) > 0 AND e.counter = c.id ORDER BY e.seq DESC LIMIT 1)
    FROM @.counter c WHERE c.id = ANY(ids);
END $$;

CREATE FUNCTION @.oldest_entries(ids bytea[], mosts bigint[])
RETURNS TABLE (counter bytea, log bigint, seq bigint, at bigint, ticket bigint, cost bigint)
LANGUAGE plpgsql VOLATILE SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY SELECT c.id, b.n, e.seq, e.at, e.ticket, e.cost
    FROM unnest(ids, mosts) k(id, most) JOIN @.counter c ON c.id = k.id
    CROSS JOIN LATERAL unnest(c.born) WITH ORDINALITY b(born, n)
    CROSS JOIN LATERAL (SELECT x.seq, x.at, x.ticket, x.cost FROM @.entry x
      WHERE x.counter = c.id AND x.seq >= b.born ORDER BY x.seq LIMIT k.most) e;
END $$;

CREATE FUNCTION @.put_counters(ids bytea[], rules text[], keys text[], all_limits text[], all_states bytea[],
  borns text[], useds text[], seqs bigint[], holdss bigint[], helds bigint[], oldests bigint[],
  newests bigint[], idle_ats bigint[])
RETURNS void LANGUAGE plpgsql VOLATILE SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
  INSERT INTO @.counter AS c (id, rule, key, limits, states, born, used, seq, holds, held, oldest, newest, idle_at)
    SELECT u.id, u.rule, u.key, u.limits, u.states, u.born::bigint[], u.used::bigint[], u.seq, u.holds, u.held,
      u.oldest, u.newest, u.idle_at
    FROM unnest(ids, rules, keys, all_limits, all_states, borns, useds, seqs, holdss, helds, oldests, newests,
      idle_ats)
      u(id, rule, key, limits, states, born, used, seq, holds, held, oldest, newest, idle_at)
    ON CONFLICT (id) DO UPDATE SET limits = excluded.limits, states = excluded.states, born = excluded.born,
      used = excluded.used, seq = excluded.seq, holds = excluded.holds, held = excluded.held,
      oldest = excluded.oldest, newest = excluded.newest, idle_at = excluded.idle_at;
END $$;

CREATE FUNCTION @.add_entries(counters bytea[], seqs bigint[], ats bigint[], tickets bigint[], costs bigint[])
RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  INSERT INTO @.entry (counter, seq, at, ticket, cost) SELECT * FROM unnest(counters, seqs, ats, tickets, costs);
END $$;

CREATE FUNCTION @.drop_entries(counters bytea[], belows bigint[])
RETURNS void LANGUAGE plpgsql VOLATILE SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
  DELETE FROM @.entry e USING unnest(counters, belows) d(counter, below)
    WHERE e.counter = d.counter AND e.seq < d.below;
END $$;
