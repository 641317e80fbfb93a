import { expect, test } from "vitest";

import type { ComponentField, FormField, ListField, NumberField } from "../src/api/form";
import { changeItem, chosenFields, makeKey, overridesOf } from "../src/launch/overrides";

const facts = { label: "", doc: "", default: false, group: "", is_nullable: false, is_required: false };

function number(key: string, value: number | null, more: Partial<NumberField> = {}): NumberField {
  return { ...facts, key, type: "number", value, is_integer: false, min: null, max: null, ...more };
}

const optim: ComponentField = {
  ...facts,
  key: "optim",
  type: "component",
  value: "AdamW",
  choices: [
    { name: "AdamW", doc: "", fields: [number("optim.lr", 0.001), number("optim.eps", 1e-8)] },
    { name: "SGD", doc: "", fields: [number("optim.lr", null), { ...facts, key: "optim.nesterov", type: "bool", value: false }] },
  ],
};
const hooks: ListField = {
  ...facts,
  key: "hooks",
  type: "list",
  value: [{ type: "EarlyStopping", patience: 10 }],
  choices: [{ name: "EarlyStopping", doc: "", fields: [number("hooks.patience", 5, { is_integer: true })] }],
};

test("a component that the config lacks is added, and one that it has is removed", () => {
  const [absent, present] = [{ ...optim, value: null, is_nullable: true }, { ...optim, is_nullable: true }];
  expect(overridesOf([absent], {}).overrides).toEqual({});
  expect(overridesOf([absent], { optim: "SGD", "optim.lr": "0.5" }).overrides).toEqual({ optim: "SGD", "optim.lr": 0.5 });
  expect(overridesOf([present], { optim: "" }).overrides).toEqual({ optim: null });
});

test("a number in a text field stays a number", () => {
  const warmup: FormField = { ...facts, key: "schedule.warmup", type: "text", value: 0 };
  expect(overridesOf([warmup], { "schedule.warmup": "0" }).overrides).toEqual({});
  expect(overridesOf([warmup], { "schedule.warmup": "2ep" }).overrides).toEqual({ "schedule.warmup": "2ep" });
});

test("a launch sends only values that differ from the file", () => {
  const fields: FormField[] = [
    number("lr", 0.1),
    number("width", 128, { is_integer: true }),
    { ...facts, key: "amp", type: "bool", value: true },
    { ...facts, key: "train.for", type: "text", value: "20ep" },
    { ...facts, key: "model.act", type: "choice", value: "relu", choices: ["relu", "gelu", null] },
    number("clip", 1, { is_nullable: true }),
  ];
  expect(overridesOf(fields, {})).toEqual({ overrides: {}, faults: {} });
  const drafts = { lr: "1e-3", width: "128", amp: false, "train.for": "5ep", "model.act": "null", unknown: "1" };
  expect(overridesOf(fields, drafts)).toEqual({ overrides: { lr: 0.001, amp: false, "train.for": "5ep", "model.act": null }, faults: {} });
  expect(overridesOf(fields, { clip: "" }).overrides).toEqual({ clip: null });
  expect(overridesOf(fields, { lr: "", "model.act": "script" }).overrides).toEqual({});
});

test("a value outside of its range is named with its bound", () => {
  const fields = [number("p", 0.1, { min: 0, max: 1 }), number("n", 2, { is_integer: true })];
  const faults = (p: string, n = "") => overridesOf(fields, { p, n });
  expect(faults("2").faults).toEqual({ p: { kind: "max", bound: 1 } });
  expect(faults("-1").faults).toEqual({ p: { kind: "min", bound: 0 } });
  expect(Object.keys(faults("fast", "1.5").faults)).toEqual(["p", "n"]);
  expect(faults("Infinity").faults).toEqual({ p: { kind: "number", bound: 0 } });
  expect(faults("2").overrides).toEqual({});
});

test("a component that is chosen brings its own fields, and only those are sent", () => {
  expect(overridesOf([optim], { "optim.eps": "0.5" }).overrides).toEqual({ "optim.eps": 0.5 });
  const drafts = { optim: "SGD", "optim.eps": "0.5", "optim.lr": "0.2", "optim.nesterov": true };
  expect(chosenFields(optim, drafts).map((one) => one.key)).toEqual(["optim.lr", "optim.nesterov"]);
  expect(chosenFields(optim, drafts)[0]?.value, "the server keeps values that both types have").toBe(0.001);
  expect(overridesOf([optim], drafts).overrides).toEqual({ optim: "SGD", "optim.lr": 0.2, "optim.nesterov": true });
});

test("a list is sent as a whole, and its wrong numbers are found", () => {
  const field = hooks.choices[0]?.fields[0] as NumberField;
  const item = { type: "EarlyStopping", patience: 10 };
  expect(overridesOf([hooks], { hooks: [item] }).overrides).toEqual({});
  expect(changeItem(item, field, "")).toEqual({ type: "EarlyStopping" });
  expect(overridesOf([hooks], { hooks: [changeItem(item, field, "3")] }).overrides).toEqual({ hooks: [{ type: "EarlyStopping", patience: 3 }] });
  const typed = changeItem(item, field, "3x");
  expect(typed["patience"]).toBe("3x");
  expect(overridesOf([hooks], { hooks: [item, typed] }).faults).toEqual({ "hooks.1.patience": { kind: "number", bound: 0 } });
});

test("the key of each launch is another one", () => {
  expect(makeKey()).toMatch(/^[0-9a-f]{32}$/);
  expect(makeKey()).not.toBe(makeKey());
});
