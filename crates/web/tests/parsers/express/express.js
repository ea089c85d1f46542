// Reads logins as Express does, with both of its parsers of names, and with both of its parsers of queries.
// A line of input is one login, a line of output what they find.
'use strict';

const http = require('node:http');
const { PassThrough } = require('node:stream');
const readline = require('node:readline');
const express = require('express');

const name = (extended) => (extended ? 'Express, extended names' : 'Express');

function application(extended) {
  const app = express();
  app.set('query parser', extended ? 'extended' : 'simple');
  app.use(express.json(), express.urlencoded({ extended }));
  // What the parsers left in the request is the answer; no byte is sent.
  app.use((request, response) => {
    const names = request.is('json') ? ['user'] : ['user', 'user[]'];
    response.found([...all(request.query, ['user', 'user[]']), ...all(request.body, names)]);
  });
  // A parser that refuses a login finds no account in it.
  app.use((error, request, response, next) => response.found([]));
  return app;
}

// Every value of the members that a service would take for the account.
function all(members, names) {
  const values = names.map((name) => members?.[name]).filter((value) => value !== undefined);
  return values.flatMap((value) => (Array.isArray(value) ? value.map((one) => JSON.stringify(one)) : [text(value)]));
}

function text(value) {
  return typeof value === 'object' ? JSON.stringify(value) : String(value);
}

function read(app, login) {
  return new Promise((found) => {
    const body = Buffer.from(login.body, 'hex');
    const request = new http.IncomingMessage(new PassThrough());
    Object.assign(request, { method: 'POST', url: '/login?' + login.query });
    request.headers = { host: 'shop', 'content-type': login.type, 'content-length': String(body.length) };
    request.push(body);
    request.push(null);
    const response = new http.ServerResponse(request);
    response.found = found;
    app(request, response);
  });
}

async function main() {
  const applications = [false, true].map((extended) => [name(extended), application(extended)]);
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const login = JSON.parse(line);
    const found = {};
    for (const [name, app] of applications) found[name] = await read(app, login);
    process.stdout.write(JSON.stringify(found) + '\n');
  }
}

main();
