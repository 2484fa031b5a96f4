// The page's end of `gad`, which a script of web_execute_js sees while it runs: an object that gad/browser/bridge.py
// holds by its handle, so the page has no name for it and no way to it.
//
// It is in the page's own world and the page may have replaced whatever it could, so what matters here is done by the
// language alone: literals without a prototype, async functions and `await` of an object with a `then` of its own.
// Calls are taken from here one by one; nothing is sent.
(() => {
  'use strict';
  const MOST_CALLS = 1000;
  let first = null, last = null;  // calls that wait to be taken
  let count = 0, open = true, wake = null;
  const taken = { __proto__: null };

  const call = async (name, args) => {
    const trouble = new Error();  // made here, where it takes down the line of the script
    const fail = (message) => {
      trouble.message = message;
      throw trouble;
    };
    if (!open) fail(`gad.${name}: the script has ended`);
    for (let i = 0; i < args.length; i++) {
      const type = typeof args[i];
      if (type !== 'number' && type !== 'string') {
        fail(`gad.${name}: argument ${i + 1} is of type ${type}; give refs or CSS selectors, and texts`);
      }
    }
    if (++count > MOST_CALLS) fail(`gad.${name}: more than ${MOST_CALLS} calls in one script`);
    const made = { __proto__: null, id: count, name, args, next: null, told: null };
    if (last === null) first = made;
    else last.next = made;
    last = made;
    if (wake !== null) wake();
    const told = await { __proto__: null, then(resolve) { made.told = resolve; } };
    if (told.error !== '') fail(told.error);
    return told.value;
  };

  // The members of an object of the DOM, such as a rectangle or a location, that are no objects themselves.
  const copyPlain = (item, copy) => {
    let left = 80;
    for (const key in item) {
      const value = item[key];
      if (typeof value === 'object' || typeof value === 'function') continue;
      if (left-- === 0) break;
      copy[key] = typeof value === 'string' && value.length > 2000 ? '[...]' : value;
    }
  };

  return {
    __proto__: null,
    api: {
      __proto__: null,
      click: (...args) => call('click', args),
      type: (...args) => call('type', args),
      press: (...args) => call('press', args),
      select: (...args) => call('select', args),
      drag: (...args) => call('drag', args),
      hover: (...args) => call('hover', args),
      upload: (...args) => call('upload', args),
      goto: (...args) => call('goto', args),
      back: (...args) => call('back', args),
      el: (...args) => call('el', args),
    },

    // Waits until there is a call to take, or no more will come.
    ready: async () => {
      await { __proto__: null, then(resolve) {
        if (first !== null || !open) resolve();
        else wake = resolve;
      } };
      wake = null;
    },

    // The next call, undefined when there is none.
    take: () => {
      if (first === null) return undefined;
      const made = first;
      first = made.next;
      if (first === null) last = null;
      taken[made.id] = made;
      return { __proto__: null, id: made.id, name: made.name, args: made.args };
    },

    answer: (id, error) => {
      const made = taken[id];
      delete taken[id];
      made.told({ __proto__: null, error, value: made.element });
    },

    // Called with an element of this document, before the answer to gad.el.
    put: (id, element) => {
      if (element.ownerDocument !== document) return false;
      taken[id].element = element;
      return true;
    },

    close: () => {
      open = false;
      if (wake !== null) wake();
    },

    // The value itself; throws 'too large' for one that would take more than `most` characters to send. Where the page
    // has replaced what this uses, the value goes unmeasured.
    measured: (value, most) => {
      let size = 0;
      try {
        const seen = new WeakSet();
        const add = (item, depth) => {
          size += 40;
          if (size > most) return;
          if (typeof item === 'string') size += item.length;
          if (typeof item !== 'object' || item === null || depth === 12 || seen.has(item)) return;
          seen.add(item);
          if (item === window || item.nodeType !== undefined) size += 400;
          else if (ArrayBuffer.isView(item)) size += 4 * item.byteLength;
          else if (typeof item.size === 'number' && typeof item.forEach === 'function') {
            for (const each of item) add(each, depth + 1);
          } else {
            for (const key of Object.keys(item)) {
              size += key.length;
              if (size > most) return;
              add(item[key], depth + 1);
            }
          }
        };
        add(value, 0);
      } catch { /* as said above */ }
      if (size > most) throw 'too large';
      return value;
    },

    // What the browser's own serialisation says only the type of, made plain: `paths` are [type, key, key, ...].
    plain: (value, paths) => {
      const found = { __proto__: null };
      for (let i = 0; i < paths.length; i++) {
        const kind = paths[i][0];
        let item = value;
        try {
          for (let j = 1; j < paths[i].length; j++) item = item[paths[i][j]];
          if (kind === 'function') found[i] = item.name ? `[function ${item.name}]` : '[function]';
          else if (kind === 'error' || typeof item.message === 'string' && typeof item.name === 'string') {
            found[i] = `${item.name}: ${item.message}`;
          } else {
            const copy = { __proto__: null };
            if (kind === 'typedarray') for (let j = 0; j < item.length; j++) copy[j] = item[j];
            else copyPlain(item, copy);
            found[i] = copy;
          }
        } catch { /* it cannot be read: its type is all there is to say */ }
      }
      return found;
    },
  };
})()
