-- When a node last began to remove idle rows, so that of many nodes only one looks at all rows.
CREATE TABLE @.swept (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  at bigint NOT NULL
);
INSERT INTO @.swept (at) VALUES (0);
