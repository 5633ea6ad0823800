// What the views of the page docs/play.md draw with: SVG elements, colours, numbers as text.
"use strict";

const PlayDrawing = (() => {
  const SVG = "http://www.w3.org/2000/svg";
  const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#999999", "#b8a800"];

  const byId = id => document.getElementById(`play-${id}`);
  const minus = text => text.replace(/-/g, "−");
  const format = (value, digits = 2) => (value === 0 ? "0" : minus(value.toFixed(digits)));
  const subscript = i => String(i).replace(/\d/g, digit => "₀₁₂₃₄₅₆₇₈₉"[digit]);
  const supportSize = p => p.filter(share => share > 0).length;

  function draw(parent, name, attributes, text) {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    parent.append(element);
    return element;
  }

  /** An empty picture. */
  function clear(id) {
    byId(id).replaceChildren();
    return byId(id);
  }

  /** While a pointer drags, call `moved` with its step and its position, in the picture's units. */
  function whenDragged(svg, moved) {
    let last;
    const position = ({ clientX, clientY }) => {
      const { x, y } = new DOMPoint(clientX, clientY).matrixTransform(svg.getScreenCTM().inverse());
      return [x, y];
    };
    svg.addEventListener("pointerdown", event => {
      last = position(event);
      svg.setPointerCapture(event.pointerId);
    });
    svg.addEventListener("pointermove", event => {
      if (!last) return;
      const here = position(event);
      moved([here[0] - last[0], here[1] - last[1]], here);
      last = here;
    });
    for (const end of ["pointerup", "pointercancel"]) svg.addEventListener(end, () => { last = undefined; });
  }

  /** Call `moved` with the direction of an arrow key pressed on a picture. */
  function whenArrow(svg, moved) {
    const directions = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    svg.addEventListener("keydown", event => {
      if (!directions[event.key]) return;
      event.preventDefault();
      moved(directions[event.key]);
    });
  }

  return { COLOURS, byId, minus, format, subscript, supportSize, draw, clear, whenDragged, whenArrow };
})();
