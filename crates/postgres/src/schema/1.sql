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
