// Which view is shown; its name is in the address after "#", so that Back works.

const listeners = new Set();
let passed = {};

export function watchRoute(listener) {
  listeners.add(listener);
}

export const route = () => location.hash.slice(1);

/** Show a view; `options` are for it alone, and not in the address. */
export function go(name, options = {}) {
  passed = options;
  if (route() === name) tell();
  else location.hash = name;
}

function tell() {
  const options = passed;
  passed = {};
  for (const listener of listeners) listener(route(), options);
}

window.addEventListener("hashchange", tell);
