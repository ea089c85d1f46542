// The audit log: which changes were made over the API, and by which key.

import { Moment, Notice, Table, Text, useCall } from "../parts";

interface Change {
  at: string;
  actor: string;
  action: string;
  what: string;
  before: string | null;
  after: string | null;
}

export function Changes() {
  const { data, error } = useCall<{ changes: Change[] }>("changes?limit=500", 5000);
  return (
    <>
      <div class="title">
        <h1>Changes</h1>
      </div>
      <p class="dim small">The latest changes over the API of this node since its start. The log has all of them (<code>component=audit</code>).</p>
      {error && <Notice tone="bad">{error}</Notice>}
      <Table
        none={data ? "No changes." : "…"}
        rows={(data?.changes ?? []).map((change, index) => ({ ...change, index }))}
        id={(row) => `${row.at} ${row.index}`}
        columns={[
          { name: "at", cell: (row) => <Moment>{row.at}</Moment> },
          { name: "by", cell: (row) => <Text>{row.actor}</Text> },
          { name: "change", cell: (row) => row.action },
          { name: "of", cell: (row) => <Text>{row.what}</Text> },
          { name: "before", cell: (row) => <Text>{row.before}</Text> },
          { name: "after", cell: (row) => <Text>{row.after}</Text> },
        ]}
      />
    </>
  );
}
