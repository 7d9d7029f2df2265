// A colour for each class, of one lightness, with neighbours in the list far apart.

const GOLDEN = 137.508; // degrees
const dark = matchMedia("(prefers-color-scheme: dark)");

/** Return the CSS colour of a class or of a code below 0. */
export function colour(code) {
  if (code < 0) return dark.matches ? "#7b8590" : "#8b949e";
  const hue = (212 + code * GOLDEN) % 360;
  const ring = Math.floor(code / 12) % 3; // later classes differ in lightness as well
  return dark.matches
    ? `hsl(${hue} 62% ${64 - 8 * ring}%)`
    : `hsl(${hue} 62% ${42 + 8 * ring}%)`;
}
