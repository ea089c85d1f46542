-- The other design: the server decides. One function, one round trip, and a third implementation of every
-- kind of limit, of which this is the simplest. It is measured and not used.
CREATE SCHEMA spike;
CREATE TABLE spike.counter (key text PRIMARY KEY, started timestamptz NOT NULL, used bigint NOT NULL)
    WITH (fillfactor = 70);
CREATE FUNCTION spike.take(wanted text[], most bigint, period interval) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    one text;
    moment timestamptz;
BEGIN
    FOREACH one IN ARRAY wanted LOOP
        PERFORM pg_advisory_xact_lock(hashtextextended(one, 0));
    END LOOP;
    moment := clock_timestamp();
    IF EXISTS (SELECT FROM spike.counter c
               WHERE c.key = ANY (wanted) AND c.used >= most AND moment < c.started + period) THEN
        RETURN false;
    END IF;
    INSERT INTO spike.counter AS c SELECT name, moment, 1 FROM unnest(wanted) AS name
    ON CONFLICT (key) DO UPDATE SET
        used = CASE WHEN moment < c.started + period THEN c.used + 1 ELSE 1 END,
        started = CASE WHEN moment < c.started + period THEN c.started ELSE moment END;
    RETURN true;
END $$;
