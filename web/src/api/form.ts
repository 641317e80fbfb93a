/** The form of an experiment, as the server describes it. */

import type { Cell } from "./types";

interface FieldFacts {
  key: string;
  label: string;
  doc: string;
  default: boolean;
  group: string;
  is_nullable: boolean;
  is_required: boolean;
}

export interface NumberField extends FieldFacts {
  type: "number";
  value: number | null;
  is_integer: boolean;
  min: number | null;
  max: number | null;
}

export interface PlainField extends FieldFacts {
  type: "bool" | "text";
  value: Cell;
  /** Suggestions for a text. */
  choices?: Cell[];
}

export interface ChoiceField extends FieldFacts {
  type: "choice";
  value: Cell;
  choices: Cell[];
}

/** A part that a registry knows by name, and its arguments. */
export interface ComponentChoice {
  name: string;
  doc: string;
  fields: FormField[];
}

export interface ComponentField extends FieldFacts {
  type: "component";
  value: string | null;
  choices: ComponentChoice[];
}

export type ListItem = { type: string } & Record<string, Cell>;

/** A list of components, such as hooks; the last part of a field's key is the key inside of an item. */
export interface ListField extends FieldFacts {
  type: "list";
  value: ListItem[];
  choices: ComponentChoice[];
}

export type FormField = NumberField | PlainField | ChoiceField | ComponentField | ListField;

export interface FormProblem {
  key: string;
  what: string;
  hint: string;
  line: number;
}

export interface LaunchForm {
  desc: string;
  tag: string;
  fields: FormField[];
  text?: string;
  problems: FormProblem[];
  /** Files that changed since the run that is run again. */
  changed_code: string[];
  parameters?: number | null;
  memory_bytes?: number | null;
  note?: string;
  is_building?: boolean;
}
