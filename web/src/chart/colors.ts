/** Colours of curves, readable on light and dark. */

const LIGHT = ["#2457c5", "#d1495b", "#2e8b57", "#b7791f", "#7b4bc4", "#0e8a9a", "#c2418f", "#5f6b7a", "#7a8b00", "#a0522d"];
const DARK = ["#7aa2f7", "#f2798a", "#6fcf97", "#e5b567", "#b794f6", "#4fd1dc", "#f08bc6", "#a3adba", "#c3d246", "#d99a6c"];

export function colorOf(place: number, isDark: boolean): string {
  const colors = isDark ? DARK : LIGHT;
  return colors[place % colors.length] ?? "#888888";
}

/** A colour with an alpha value, as #rrggbbaa. */
export function fade(color: string, alpha: number): string {
  return color + Math.round(alpha * 255).toString(16).padStart(2, "0");
}
