// The drawing pad: strokes of a mouse, a pen or a finger, and the picture they make.
//
// A stroke is a list of points [x, y] from 0 to 1. Strokes are kept as lines, so a drawing that is
// too small or off the centre is moved into place without changing the width of its pen.

const PICTURE = 105; // side of the picture of a drawing, as in Omniglot
const PEN = 0.048; // width of a line: the ink of Omniglot's pen, as a fraction of the side
const SMALLEST = 0.4; // a drawing is enlarged to this fraction of the side,
const LARGEST = 0.8; // or reduced to this one

// The strokes, centred by their bounding box and of a moderate size.
function framed(strokes) {
  const points = strokes.flat();
  const [xs, ys] = [0, 1].map((axis) => points.map((point) => point[axis]));
  const [left, right] = [Math.min(...xs), Math.max(...xs)];
  const [top, bottom] = [Math.min(...ys), Math.max(...ys)];
  const side = Math.max(right - left, bottom - top, 0.1); // a dot stays a dot
  const scale = Math.min(Math.max(side, SMALLEST), LARGEST) / side;
  const place = (value, low, high) => 0.5 + (value - (low + high) / 2) * scale;
  return strokes.map((stroke) =>
    stroke.map(([x, y]) => [place(x, left, right), place(y, top, bottom)]),
  );
}

function drawStrokes(context, strokes, side) {
  context.lineWidth = PEN * side;
  context.lineCap = context.lineJoin = "round";
  context.strokeStyle = "#000";
  for (const stroke of strokes) {
    context.beginPath();
    const [x, y] = stroke[0];
    context.moveTo(x * side, y * side);
    if (stroke.length === 1) context.lineTo(x * side + 0.01, y * side);
    for (let i = 1; i < stroke.length; i++) {
      // Through the middle of every two points, which rounds the corners of a quick hand.
      const [ax, ay] = stroke[i - 1];
      const [bx, by] = stroke[i];
      context.quadraticCurveTo(ax * side, ay * side, ((ax + bx) / 2) * side, ((ay + by) / 2) * side);
    }
    const [endX, endY] = stroke[stroke.length - 1];
    context.lineTo(endX * side, endY * side);
    context.stroke();
  }
}

// The picture {width, height, data} of a drawing: black lines on white.
function drawnPicture(strokes) {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = PICTURE;
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.fillStyle = "#fff";
  context.fillRect(0, 0, PICTURE, PICTURE);
  drawStrokes(context, framed(strokes), PICTURE);
  return context.getImageData(0, 0, PICTURE, PICTURE);
}

// Report the strokes that are drawn on a canvas: `began` and `moved` with the points so far, `ended`.
function watchStrokes(canvas, { began, moved, ended }) {
  let stroke = null;
  let pointer = null;
  const point = (event) => {
    const box = canvas.getBoundingClientRect();
    const within = (value) => Math.min(1, Math.max(0, value));
    return [within((event.clientX - box.left) / box.width), within((event.clientY - box.top) / box.height)];
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (pointer !== null || event.button !== 0) return; // a second finger draws nothing
    pointer = event.pointerId;
    canvas.setPointerCapture(pointer);
    stroke = [point(event)];
    began(stroke);
    event.preventDefault();
  });
  canvas.addEventListener("pointermove", (event) => {
    if (event.pointerId !== pointer) return;
    const events = event.getCoalescedEvents?.() ?? [];
    for (const each of events.length ? events : [event]) stroke.push(point(each));
    moved(stroke);
  });
  const finish = (event) => {
    if (event.pointerId !== pointer) return;
    pointer = null;
    ended(stroke);
  };
  canvas.addEventListener("pointerup", finish);
  canvas.addEventListener("pointercancel", finish);
}
