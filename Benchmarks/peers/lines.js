// The workloads in JavaScript: `node lines.js WORK < INPUT > OUTPUT`.
const works = {
  filter: (event, line) => (event.status >= 500 ? line : null),
  map: (event) => JSON.stringify({
    id: event.id, service: event.service, us: event.latency * 1000,
    what: event.request.method + " " + event.request.path}),
  set: (event) => JSON.stringify({...event, status: event.status + 1}),
  same: (event) => JSON.stringify(event),
};
let before;
works.changes = (event, line) => {
  if (event.service === before) return null;
  before = event.service;
  return line;
};
const known = new Set();
works.distinct = (event, line) => {
  if (known.has(event.client)) return null;
  known.add(event.client);
  return line;
};
const groups = new Map();
works.groups = (event) => {
  const key = event.service + "\0" + event.status;
  let group = groups.get(key);
  if (!group) groups.set(key, (group = {service: event.service, status: event.status, count: 0, sum: 0}));
  group.count++;
  group.sum += event.latency;
  return null;
};
const work = works[process.argv[2]];
const fs = require("fs");
const block = Buffer.alloc(1 << 20);
let held = Buffer.alloc(0), out = [], size = 0;
function flush() {
  if (out.length) fs.writeSync(1, out.join("\n") + "\n");
  out = [];
  size = 0;
}
for (let count; (count = fs.readSync(0, block, 0, block.length, null)) > 0;) {
  const text = Buffer.concat([held, block.subarray(0, count)]);
  const end = text.lastIndexOf(10) + 1;
  held = Buffer.from(text.subarray(end));
  for (const line of text.toString("utf8", 0, end).split("\n")) {
    if (!line) continue;
    const made = work(JSON.parse(line), line);
    if (made === null) continue;
    out.push(made);
    if ((size += made.length) > 1 << 20) flush();
  }
}
for (const {service, status, count, sum} of groups.values())
  out.push(JSON.stringify({service, status, count, mean: sum / count}));
flush();
