// Measures in the page how well its texts can be read.

/** What WCAG asks of normal text (AA). A disabled button may have less. */
const CONTRAST = 4.5;

/** The brightness of the page, and each visible text whose contrast is too low. Runs in the page. */
export const looks = (page, least = CONTRAST) => page.evaluate((least) => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (color) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const brightness = (color) => {
    const [red, green, blue] = color.map((one) => (one / 255 <= 0.03928 ? one / 255 / 12.92 : ((one / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = rgba(getComputedStyle(at).backgroundColor);
      if (color[3] === 255) return color;
    }
    return rgba("white");
  };
  const pale = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const [text, element] = [texts.currentNode.textContent.trim(), texts.currentNode.parentElement];
    if (!text || !element.checkVisibility() || element.closest("option, noscript, title, style, button:disabled")) continue;
    const style = getComputedStyle(element);
    const color = rgba(element instanceof SVGElement ? style.fill : style.color);
    const [one, two] = [brightness(color), brightness(behind(element))];
    const contrast = (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05);
    if (contrast < least) pale.push(`${text.slice(0, 40)}: ${contrast.toFixed(2)}`);
  }
  return { back: brightness(rgba(getComputedStyle(document.body).backgroundColor)), pale };
}, least);
