"use strict";
// A chat over /v1/chat/completions, and what /metrics tells of the server.

const element = (id) => document.getElementById(id);
const conversation = [];
let running = null; // AbortController of the answer under way

function headers() {
  const key = element("key").value;
  sessionStorage.setItem("key", key);
  return key ? { authorization: `Bearer ${key}` } : {};
}

function show_error(text) {
  element("error").textContent = text;
  element("error").hidden = !text;
}

async function failure_of(answer) {
  const text = await answer.text();
  try {
    return JSON.parse(text).error.message;
  } catch {
    return `${answer.status} ${text.slice(0, 200)}`;
  }
}

async function list_models() {
  const answer = await fetch("v1/models", { headers: headers() });
  if (!answer.ok) return show_error(await failure_of(answer));
  show_error("");
  const chosen = element("model").value;
  const names = (await answer.json()).data.map((model) => model.id);
  element("model").replaceChildren(...names.map((name) => new Option(name, name, false, name === chosen)));
}

function add_message(role, text) {
  const row = document.createElement("li");
  row.className = role;
  row.textContent = text;
  element("messages").append(row);
  row.scrollIntoView({ block: "end" });
  return row;
}

// The data of each event of a stream.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) if (block.startsWith("data: ")) yield block.slice(6);
  }
}

function request() {
  const system = element("system").value.trim();
  const body = {
    model: element("model").value,
    messages: [...(system ? [{ role: "system", content: system }] : []), ...conversation],
    temperature: Number(element("temperature").value),
    stream: true,
    stream_options: { include_usage: true },
  };
  if (element("tokens").value) body.max_completion_tokens = Number(element("tokens").value);
  if (element("top-p").value) body.top_p = Number(element("top-p").value);
  if (element("seed").value) body.seed = Number(element("seed").value);
  const schema = element("schema").value.trim();
  if (schema) body.response_format = { type: "json_schema", json_schema: { name: "answer", strict: true, schema: parsed(schema) } };
  return body;
}

function parsed(schema) {
  try {
    return JSON.parse(schema);
  } catch (error) {
    throw new Error(`the schema is not JSON: ${error.message}`);
  }
}

async function receive(row, signal) {
  const answer = await fetch("v1/chat/completions", {
    method: "POST", signal, headers: { "content-type": "application/json", ...headers() }, body: JSON.stringify(request()),
  });
  if (!answer.ok) throw new Error(await failure_of(answer));
  const begun = performance.now();
  let first = 0, text = "", usage = null, frame = 0;
  // Once a frame, not once a token: a long answer would be laid out again thousands of times.
  const show = () => {
    frame = 0;
    row.textContent = text;
    row.scrollIntoView({ block: "end" });
  };
  try {
    for await (const data of events(answer.body)) {
      if (data === "[DONE]") break;
      const part = JSON.parse(data);
      if (part.error) throw new Error(part.error.message);
      usage = part.usage || usage;
      text += part.choices.map((choice) => choice.delta.content || "").join("");
      if (text && !first) first = performance.now();
      frame ||= requestAnimationFrame(show);
    }
  } finally {
    cancelAnimationFrame(frame);
    show();
    if (text) conversation.push({ role: "assistant", content: text });
  }
  if (!usage) return;
  const seconds = (performance.now() - (first || begun)) / 1000;
  const note = document.createElement("small");
  note.textContent = `${usage.completion_tokens} tokens, ${(usage.completion_tokens / Math.max(seconds, 1e-3)).toFixed(1)} a second, ` +
    `${usage.prompt_tokens_details.cached_tokens} of ${usage.prompt_tokens} prompt tokens from the cache`;
  row.append(note);
  row.scrollIntoView({ block: "end" });
}

async function send(event) {
  event.preventDefault();
  const text = element("text").value.trim();
  if (!text || running) return;
  show_error("");
  conversation.push({ role: "user", content: text });
  add_message("user", text);
  element("text").value = "";
  running = new AbortController();
  element("send").hidden = true;
  element("stop").hidden = false;
  const row = add_message("assistant", "");
  try {
    await receive(row, running.signal);
  } catch (error) {
    if (error.name !== "AbortError") show_error(error.message);
    if (!row.textContent) row.remove();
  } finally {
    running = null;
    element("send").hidden = false;
    element("stop").hidden = true;
    element("text").focus();
  }
}

// Prometheus' text form: name to the sum over labels; buckets by their bound.
function parse(text) {
  const values = {}, buckets = {};
  for (const line of text.split("\n")) {
    const found = /^(\w+)(?:\{(.*)\})? (\S+)$/.exec(line);
    if (!found) continue;
    const [, name, labels, number] = found;
    const bound = /(?:^|,)le="([^"]*)"/.exec(labels || "");
    if (bound) (buckets[name] ||= []).push([bound[1] === "+Inf" ? Infinity : Number(bound[1]), Number(number)]);
    else values[name] = (values[name] || 0) + Number(number);
  }
  return { values, buckets };
}

// The bound below which that share of a histogram lies.
function quantile(rows, share) {
  if (!rows || !rows.length) return "";
  const total = rows[rows.length - 1][1];
  if (!total) return "";
  const [bound] = rows.find(([, count]) => count >= share * total);
  if (bound === Infinity) return "> 100 s";
  return bound < 1 ? `< ${bound * 1000} ms` : `< ${bound} s`;
}

const megabytes = (bytes) => `${(bytes / 1e6).toFixed(1)} MB`;

// What each rank holds: {"model": [{"rank", "place": {"tensor": 0}, "weight_bytes", ...}, ...]}.
function show_ranks(models) {
  const several = Object.keys(models).length > 1;
  const rows = Object.entries(models).flatMap(([name, ranks]) => ranks.map((rank) => {
    const row = document.createElement("tr"), place = Object.entries(rank.place).map((axis) => axis.join(" ")).join(", ");
    const cells = [`${several ? `${name} ` : ""}${rank.rank}${place && ` (${place})`}`, megabytes(rank.weight_bytes + rank.adapter_bytes),
      megabytes(rank.cache_bytes)];
    for (const text of cells) row.insertCell().textContent = text;
    return row;
  }));
  element("ranks").tBodies[0].replaceChildren(...rows);
}

let last = null;
function show_metrics({ values, buckets }) {
  const now = performance.now(), tokens = values.plait_generation_tokens_total || 0;
  const rate = last ? (tokens - last.tokens) / ((now - last.now) / 1000) : 0;
  last = { now, tokens };
  const rows = {
    "Tokens a second": rate.toFixed(1),
    "Running": values.plait_requests_running ?? 0,
    "Waiting": values.plait_requests_waiting ?? 0,
    "Connections": values.plait_open_connections ?? 0,
    "Answers cancelled": values.plait_request_cancelled_total ?? 0,
    "Memory": megabytes(values.plait_native_bytes || 0),
  };
  element("now").replaceChildren(...Object.entries(rows).flatMap(([name, value]) => {
    const term = document.createElement("dt"), number = document.createElement("dd");
    term.textContent = name;
    number.textContent = value;
    return [term, number];
  }));
  const pages = values.plait_cache_pages || 0, used = pages - (values.plait_cache_pages_free || 0);
  element("pages").firstElementChild.style.width = `${pages ? (100 * used) / pages : 0}%`;
  element("pages-text").textContent = `${used} of ${pages} pages in use`;
  const kinds = { "First token": "time_to_first_token", "Between tokens": "inter_token_latency", "Whole answer": "e2e_request_latency",
    "Queue": "request_queue_time" };
  element("latency").tBodies[0].replaceChildren(...Object.entries(kinds).map(([name, kind]) => {
    const row = document.createElement("tr"), found = buckets[`plait_${kind}_seconds_bucket`];
    for (const text of [name, quantile(found, 0.5), quantile(found, 0.99)]) row.insertCell().textContent = text;
    return row;
  }));
}

async function poll() {
  try {
    const answer = await fetch("metrics", { headers: headers() });
    if (answer.ok) show_metrics(parse(await answer.text()));
    if (answer.ok && !element("model").options.length) await list_models();
    // Every time, since models become ready one after another.
    if (answer.ok) show_ranks(await (await fetch("ranks", { headers: headers() })).json());
  } catch {
    show_error("the server does not answer");
  }
  setTimeout(poll, document.hidden ? 10000 : 1000);
}

element("key").value = sessionStorage.getItem("key") || "";
element("key").addEventListener("change", list_models);
element("ask").addEventListener("submit", send);
element("stop").addEventListener("click", () => running && running.abort());
element("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) send(event);
});
element("reset").addEventListener("click", () => {
  if (running) running.abort();
  conversation.length = 0;
  element("messages").replaceChildren();
  show_error("");
});
list_models().finally(poll);
