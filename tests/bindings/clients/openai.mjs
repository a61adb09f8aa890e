// OpenAI's client for Node. Prints one object of JSON: what each kind of call gave.
//
// usage: openai.mjs FOLDER ADDRESS MODEL, with a FOLDER that has node_modules
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { resolve } from "node:path";

const [folder, address, model] = process.argv.slice(2);
const { default: OpenAI } = await import(pathToFileURL(createRequire(resolve(folder, "x.js")).resolve("openai")));
const client = new OpenAI({ baseURL: `${address}/v1`, apiKey: "none", maxRetries: 0 });
const messages = [{ role: "user", content: "a" }];
const ask = { model, messages, temperature: 0, max_completion_tokens: 12 };
const out = {};

/** Class and fields of the exception that a call throws. */
async function thrown(call) {
  try {
    await call();
  } catch (error) {
    return { name: error.constructor.name, status: error.status, code: error.code, param: error.param };
  }
  return null;
}

const whole = await client.chat.completions.create({ ...ask, logprobs: true, top_logprobs: 2, n: 2 });
out.chat = whole.choices.map((choice) => choice.message.content);
out.logprobs = whole.choices[0].logprobs.content.map((one) => [one.logprob, one.top_logprobs.length]);
out.usage = whole.usage;

out.streamed = "";
for await (const part of await client.chat.completions.create({ ...ask, stream: true })) out.streamed += part.choices[0]?.delta?.content ?? "";
const runner = client.chat.completions.stream(ask);
out.events = (await runner.finalChatCompletion()).choices[0].message.content;

const schema = {
  type: "object", required: ["colour", "n"], additionalProperties: false,
  properties: { colour: { enum: ["red", "blue"] }, n: { type: "integer", minimum: 0, maximum: 9 } },
};
const parsed = await client.chat.completions.parse({
  ...ask, max_completion_tokens: 400, response_format: { type: "json_schema", json_schema: { name: "answer", strict: true, schema } },
});
out.parsed = parsed.choices[0].message.parsed;

const tools = [{ type: "function", function: { name: "weather", parameters: schema, strict: true } }];
const call = { ...ask, max_completion_tokens: 400, tools, tool_choice: { type: "function", function: { name: "weather" } }, parallel_tool_calls: false };
const called = await client.chat.completions.create(call);
out.call = { name: called.choices[0].message.tool_calls[0].function.name, reason: called.choices[0].finish_reason };
out.arguments = JSON.parse(called.choices[0].message.tool_calls[0].function.arguments);
const streamedCall = await client.chat.completions.stream(call).finalChatCompletion();
out.streamedArguments = JSON.parse(streamedCall.choices[0].message.tool_calls[0].function.arguments);
let ran = null;
const loop = client.chat.completions.runTools({
  ...ask, max_completion_tokens: 400, tool_choice: "required",
  tools: [{ type: "function", function: { name: "weather", parameters: schema, parse: JSON.parse, function: (given) => { ran = given; return "warm"; } } }],
}, { maxChatCompletions: 1 });
await loop.done().catch(() => {});
out.ran = ran;

const response = await client.responses.create({ model, input: "a", temperature: 0, max_output_tokens: 12 });
out.response = [response.status, response.output_text];
const kinds = [];
for await (const event of await client.responses.create({ model, input: "a", temperature: 0, max_output_tokens: 12, stream: true })) kinds.push(event.type);
out.responseEvents = [kinds[0], kinds.at(-1)];

out.completion = (await client.completions.create({ model, prompt: "a", max_tokens: 4, temperature: 0, echo: true, logprobs: 1 })).choices[0].logprobs.tokens.length;
out.embedding = (await client.embeddings.create({ model, input: ["a", "b"] })).data.map((one) => one.embedding.length);
out.models = [];
for await (const one of client.models.list()) out.models.push(one.id);

out.notFound = await thrown(() => client.chat.completions.create({ ...ask, model: "other" }));
out.badRequest = await thrown(() => client.chat.completions.create({ ...ask, temperature: -1 }));
const abort = new AbortController();
const long = await client.completions.create({ model, prompt: "a", max_tokens: 3000, n: 8, stream: true, ignore_eos: true }, { signal: abort.signal });
out.aborted = false;
for await (const part of long) {
  if (part.choices.length) abort.abort();
}
out.aborted = abort.signal.aborted;
const wrong = new OpenAI({ baseURL: `${address}/v1`, apiKey: "none", maxRetries: 0, timeout: 1 });
out.timeout = await thrown(() => wrong.completions.create({ model, prompt: "a", max_tokens: 3000, ignore_eos: true }));
console.log(JSON.stringify(out));
