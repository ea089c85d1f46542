// The built files: that they match the sources, and their size.
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { KEYS, Server, root } from "./bench.mjs";

const dist = join(root, "console/dist");

export async function the_built_files_match_the_sources_and_the_types_are_right(_, assert) {
  const fresh = mkdtempSync(join(tmpdir(), "tollgate-dist-"));
  try {
    execFileSync(process.execPath, [join(root, "console/build.mjs"), fresh]);
    assert.deepEqual(readdirSync(dist).sort(), readdirSync(fresh).sort());
    for (const file of readdirSync(fresh)) {
      assert.ok(readFileSync(join(fresh, file)).equals(readFileSync(join(dist, file))), `${file}: run \`npm run build\` in console/ and commit the result`);
    }
  } finally {
    rmSync(fresh, { recursive: true, force: true });
  }
  execFileSync(join(root, "console/node_modules/.bin/tsc"), ["--noEmit", "-p", join(root, "console")]);
}

export async function the_page_is_small_and_names_no_other_host(_, assert) {
  const files = readdirSync(dist).map((file) => readFileSync(join(dist, file)));
  const size = files.reduce((sum, bytes) => sum + gzipSync(bytes).length, 0);
  assert.ok(size <= 120_000, `${size} bytes compressed`);
  for (const bytes of files) {
    const hosts = bytes.toString().match(/(https?:)?\/\/[a-z0-9.-]+\.[a-z]{2,}/gi) ?? [];
    assert.deepEqual(hosts.filter((host) => !host.endsWith("//www.w3.org")), []);
  }
}

export async function every_file_comes_with_strict_headers_and_is_not_sent_twice(_, assert) {
  const server = await Server.start(`${KEYS}rules: { user: { by: user, limits: 3/min } }\npolicies: { api: [user] }\nstore: memory\n`);
  for (const file of ["", "console.js", "console.css", "console.svg"]) {
    const first = await fetch(server.url + file);
    assert.equal(first.status, 200);
    const policy = first.headers.get("content-security-policy");
    assert.match(policy, /^default-src 'none'; script-src 'self'; style-src 'self';/);
    assert.match(policy, /frame-ancestors 'none'/);
    assert.doesNotMatch(policy, /unsafe|\*|data:/);
    const fixed = { "x-frame-options": "DENY", "referrer-policy": "no-referrer", "x-content-type-options": "nosniff", "cache-control": "no-cache" };
    for (const [name, value] of Object.entries(fixed)) assert.equal(first.headers.get(name), value, `${file} ${name}`);
    const again = await fetch(server.url + file, { headers: { "If-None-Match": first.headers.get("etag") } });
    assert.equal(again.status, 304);
  }
  await server.kill("SIGKILL");
}
