/** The runs that are chosen for a comparison, on whatever page. */

class Selection {
  ids = $state.raw<string[]>([]);

  has(id: string): boolean {
    return this.ids.includes(id);
  }

  /** Choose runs, or drop them if all are chosen. */
  toggle(ids: string[]): void {
    if (ids.every((id) => this.ids.includes(id))) this.drop(ids);
    else this.ids = [...this.ids, ...ids.filter((id) => !this.ids.includes(id))];
  }

  drop(ids: string[]): void {
    this.ids = this.ids.filter((id) => !ids.includes(id));
  }

  clear(): void {
    this.ids = [];
  }
}

export const selection = new Selection();
