// Tells which digit is drawn, by the classifier in digits.wasm.
import { load } from "./digits.js";

const find = (id) => document.getElementById(id);
const [paper, seen] = [find("paper"), find("seen")].map((canvas) => canvas.getContext("2d", { willReadFrequently: true }));
const { width } = paper.canvas;
const side = seen.canvas.width;

const bars = Array.from({ length: 10 }, (_, digit) => {
  const item = document.createElement("li");
  item.innerHTML = `${digit}<div><i></i></div><output></output>`;
  return find("bars").appendChild(item);
});

/** The drawing as the images that the model knows: as large as 20 by 20 pixels, with its weight in the middle of 28 by 28. */
function look() {
  const pixels = paper.getImageData(0, 0, width, width).data;
  let [left, right, top, bottom] = [width, -1, width, -1];
  let [sum, x, y] = [0, 0, 0];
  for (let at = 0; at < width * width; at++) {
    const ink = pixels[4 * at + 3];
    if (ink === 0) continue;
    const [column, row] = [at % width, Math.floor(at / width)];
    [left, right, top, bottom] = [Math.min(left, column), Math.max(right, column), Math.min(top, row), Math.max(bottom, row)];
    [sum, x, y] = [sum + ink, x + ink * column, y + ink * row];
  }
  seen.clearRect(0, 0, side, side);
  if (sum === 0) return null;
  const scale = 20 / (Math.max(right - left, bottom - top) + 1);
  seen.imageSmoothingQuality = "high";
  seen.drawImage(paper.canvas, side / 2 - (x / sum) * scale, side / 2 - (y / sum) * scale, width * scale, width * scale);
  const { data } = seen.getImageData(0, 0, side, side);
  return Float32Array.from({ length: side * side }, (_, at) => data[4 * at + 3]);
}

function answer(model) {
  const image = look();
  let shares = null;
  if (image) {
    const start = performance.now();
    const outputs = model.run({ [model.inputs[0].name]: image });
    const time = performance.now() - start;
    const scores = outputs[model.outputs[0].name].data;
    const powers = scores.map((score) => Math.exp(score - Math.max(...scores)));
    shares = powers.map((power) => power / powers.reduce((a, b) => a + b));
    find("status").textContent = `Answered in ${time.toFixed(1)} ms by a convolutional network in WebAssembly, on this machine.`;
  }
  const best = shares ? shares.indexOf(Math.max(...shares)) : -1;
  find("digit").textContent = shares ? best : "";
  bars.forEach((bar, digit) => {
    const percent = shares ? 100 * shares[digit] : 0;
    bar.className = digit === best ? "best" : "";
    bar.querySelector("i").style.width = `${percent}%`;
    bar.querySelector("output").textContent = shares ? `${percent.toFixed(0)} %` : "";
  });
}

try {
  const model = await load();
  find("status").textContent = "Ready.";
  let asked = false;
  // At most once per picture that the screen shows.
  const ask = () => {
    if (!asked) requestAnimationFrame(() => ((asked = false), answer(model)));
    asked = true;
  };
  Object.assign(paper, { lineWidth: 22, lineCap: "round", lineJoin: "round", strokeStyle: "#fff" });
  let last = null;
  const point = (event) => {
    const box = paper.canvas.getBoundingClientRect();
    return [((event.clientX - box.left) * width) / box.width, ((event.clientY - box.top) * width) / box.height];
  };
  const draw = (event) => {
    if (!last) return;
    paper.beginPath();
    paper.moveTo(...last);
    paper.lineTo(...(last = point(event)));
    paper.stroke();
    ask();
  };
  paper.canvas.addEventListener("pointerdown", (event) => {
    last = point(event);
    draw(event);
  });
  window.addEventListener("pointermove", draw);
  window.addEventListener("pointerup", () => (last = null));
  find("clear").addEventListener("click", () => {
    paper.clearRect(0, 0, width, width);
    ask();
  });
} catch (error) {
  find("status").textContent = `The model cannot be loaded: ${error.message}`;
}
