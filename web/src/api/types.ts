/** The answers of the server; src/epochal/web/api has the other side. */

export type Cell = string | number | boolean | null;
export type Capability = "read" | "edit" | "launch";

export interface Session {
  capabilities: Capability[];
  csrf: string;
  version: string;
  project: string;
  runs_dir: string;
}

export type ColumnKind = "metric" | "config" | "fact";
export type ColumnType = "number" | "text" | "bool" | "time" | "duration";

export interface Column {
  name: string;
  kind: ColumnKind;
  type: ColumnType;
  differs: boolean;
}

export interface RunRow {
  id: string;
  tag: string;
  status: string;
  reason: string | null;
  runner: string;
  started: string;
  seconds: number | null;
  step: number | null;
  monitor: string | null;
  error: string | null;
  is_fast: boolean;
  is_damaged: boolean;
  labels?: string[];
  archived?: boolean;
  cells: Cell[];
  members?: number;
  ids?: string[];
  intervals?: ([number, number] | null)[];
}

export interface QueryProblem {
  where?: string;
  what: string;
  hint: string;
  column: number;
}

export interface RunTable {
  total: number;
  hidden_trials: number;
  columns: { name: string; kind: ColumnKind }[];
  rows: RunRow[];
  problem: QueryProblem | null;
}

export interface MetricFigures {
  last: Cell;
  low: Cell;
  high: Cell;
  best: Cell;
  mode: "min" | "max" | null;
  step: number | null;
  count: number;
}

export interface RunFacts {
  id: string;
  tag: string;
  project: string;
  runner: string;
  status: string;
  reason: string;
  started: string;
  ended: string;
  seconds: number | null;
  step: number;
  epoch: number;
  seed: Cell;
  monitor: { name: string; mode: string | null } | null;
  best: Cell;
  metrics: Record<string, MetricFigures>;
  attempts: { attempt: number; cause: string; started: string; step: number; changed: string[] }[];
  parent: { id: string; kind: string } | null;
  readme: string;
  desc: string;
  error: { what: string; traceback: string } | null;
  command: string;
  device: { device?: string; name?: string } | string | null;
  git: Record<string, Cell>;
  host: string;
  damage: string[];
  labels?: string[];
  archived?: boolean;
  urls?: Record<string, string>;
}

export type Axis = "step" | "epoch" | "time";

export interface Series {
  run?: string;
  name: string;
  x: number[];
  min: (number | null)[];
  max: (number | null)[];
  mean: (number | null)[];
  is_exact: boolean;
  count: number;
  attempts?: (number | null)[];
}

export interface ConfigValue {
  key: string;
  value: Cell;
  default: boolean;
  layer: string;
  place: string;
}

export interface RunConfig {
  values: ConfigValue[];
  text: string;
  format: string;
}

export interface CodeFile {
  id: string;
  path: string;
  size: number;
}

export interface RunCode {
  files: CodeFile[];
  left_out: { path: string; kind: string }[];
  altered: string[];
}

export interface CodeText {
  path: string;
  text: string;
  is_text: boolean;
  is_cut: boolean;
}

export interface LogPart {
  text: string;
  start: number;
  next: number;
  size: number;
  ranks: number[];
}

export interface LogHits {
  hits: { line: number; at: number; text: string }[];
  is_cut: boolean;
}

export interface MediaItem {
  id: string;
  name: string;
  step: number;
  kind: string;
  type: string;
}

export interface Checkpoint {
  name: string;
  step: number;
  epoch: number;
  time: string;
  reason: string;
  bytes: number;
  metric: Cell;
  is_best: boolean;
  is_last: boolean;
  has_weights?: boolean;
}

export interface LaunchedJobs {
  jobs: { id: string | number; run: string | null }[];
}

export interface TimeSpent {
  seconds: number | null;
  parts: { name: string; seconds: number; share: number; note: string }[];
  advice: string | null;
  device: string | null;
  attempts: string | null;
}

export interface Difference {
  key: string;
  values: Cell[];
  places: string[];
  is_minor: boolean;
}

export interface CodeDifference {
  path: string;
  status: "added" | "removed" | "changed";
  added: number;
  removed: number;
  diff: string;
  note: string;
}

export interface RunHead {
  id: string;
  project: string;
  tag: string;
  status: string;
}

export interface RunHeads {
  runs: RunHead[];
  metrics: string[];
}

export interface ComparedRun extends RunHead {
  step: number;
  epoch: number;
  started: string;
  ended: string;
}

export interface Comparison {
  runs: ComparedRun[];
  parameters: Difference[];
  same_parameters: number;
  metrics: { name: string; mode: string | null; last: Cell[]; best: Cell[]; is_same: boolean }[];
  code: CodeDifference[];
  code_source: string;
  packages: Difference[];
  hardware: Difference[];
  environment: Difference[];
  data: Difference[];
}

export interface Mail {
  id: string;
  kind: string;
  level: "info" | "warning" | "error";
  subject: string;
  text: string;
  time: string;
  is_read: boolean;
  /** The id of the run, or empty if the mail is about a sweep. */
  run: string;
  sweep: string;
}

export interface MailList {
  unread: number;
  mails: Mail[];
}

export interface NewPoints {
  run: string;
  name: string;
  attempt: number;
  x: number[];
  time: number[];
  y: (number | null)[];
}

export interface Job {
  id: number;
  title: string;
  state: "waiting" | "running" | "finished" | "failed" | "removed";
  priority: number;
  is_paused: boolean;
  is_stopping: boolean;
  has_worker: boolean;
  added: number;
  started: number | null;
  ended: number | null;
  seconds: number | null;
  device: string;
  error: string | null;
  obstacle: string | null;
  run: string | null;
  /** The folder of runs that has its record, if this page does not show it. */
  elsewhere: string | null;
}

export interface JobQueue {
  is_paused: boolean;
  is_worked?: boolean;
  jobs: Job[];
}

export interface Devices {
  host: string;
  devices: { name: string; title: string; cores?: number; free: number | null; total: number | null; use: number | null; jobs: number[] }[];
}

export interface ExperimentFile {
  id: string;
  name: string;
  path: string;
}

export interface SweepSummary {
  id: string;
  begun: string | null;
  is_running: boolean;
  trials: number | null;
  planned: number | null;
  metric: string | null;
  best: Cell;
  trial: number | null;
  run: string | null;
  pruned: number | null;
  failed: number | null;
  finished: number | null;
}

export interface Trial {
  number: number;
  state: "waiting" | "running" | "finished" | "pruned" | "failed";
  values: Record<string, Cell>;
  objectives: Cell[] | null;
  runs: string[];
  error: string | null;
}

export interface Sweep extends SweepSummary {
  method: string;
  repeats: number;
  parameters: string[];
  objectives: { metric: string; mode: "min" | "max" }[];
  best_trials: number[];
  importance: Record<string, number>;
  items: Trial[];
}

/** Values of many runs, for plots over all of them. */
export interface RunScatter {
  columns: string[];
  metric: string | null;
  runs: { id: string; tag: string; values: Cell[] }[];
  importance: Record<string, number>;
}

export interface TableSummary {
  name: string;
  rows: number;
  columns: number;
  changed: string | null;
}

export interface TextCell {
  text: string;
}

/** A cell that shows a metric of a run; the server fills in value and problem. */
export interface LinkCell {
  run: string;
  metric: string;
  which: "best" | "last";
  value?: Cell;
  problem?: string | null;
}

export type TableCell = TextCell | LinkCell;

export interface ResultTable {
  name: string;
  version: number;
  columns: string[];
  rows: TableCell[][];
}
