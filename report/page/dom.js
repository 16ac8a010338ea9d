// SPDX-License-Identifier: Apache-2.0
// Making elements.

/** element('button', {class: 'x', onclick: f}, child, 'text'). */
function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === 'function')
      node[name] = value;
    else if (value !== null && value !== false)
      node.setAttribute(name, value === true ? '' : value);
  }
  node.append(...children);
  return node;
}

/** A labelled <select>; `choices` are [value, text]; `changed` gets the value. */
function selector(name, choices, chosen, changed) {
  const select = element('select', {'aria-label': name, onchange: () => changed(select.value)});
  for (const [value, text] of choices) {
    select.append(element('option', {value, selected: String(value) === String(chosen)}, text));
  }
  return element('label', {class: 'selector'}, `${name} `, select);
}

/** A button that is on or off. */
function toggle(text, on, clicked) {
  return element('button', {type: 'button', 'aria-pressed': String(on), onclick: clicked}, text);
}

const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
