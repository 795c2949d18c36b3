// The contrast of every visible text to its ground, and of each part of a bar to its own, as WCAG 2.2 computes it.
(() => {
  const numbers = (colour) => (colour.match(/[\d.]+/g) ?? []).map(Number);
  const light = (colour) => {
    const [r, g, b] = numbers(colour).map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const colour = getComputedStyle(each).backgroundColor;
      const [, , , alpha = 1] = numbers(colour);
      if (alpha === 1) return colour;
    }
    return 'rgb(255, 255, 255)';
  };
  const ratio = (one, other) => {
    const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const texts = [...document.querySelectorAll('body *')].filter(
    (each) => each.checkVisibility() && [...each.childNodes].some((node) => node.nodeType === 3 && node.data.trim()) || each.tagName === 'INPUT',
  );
  const bars = [...document.querySelectorAll('.bar .requested, .bar .free')].filter(
    (each) => each.checkVisibility() && numbers(getComputedStyle(each).backgroundColor)[3] !== 0,
  );
  return {
    texts: texts.map((each) => [each.className || each.tagName, ratio(getComputedStyle(each).color, ground(each))]),
    bars: bars.map((each) => [each.className, ratio(getComputedStyle(each).backgroundColor, ground(each.closest('.classes')))]),
  };
})()
