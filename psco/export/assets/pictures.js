// Pictures and files from outside: dropped, pasted, chosen or photographed.

const LARGEST_SIDE = 4096; // larger photographs are halved by the browser first

// A picture {width, height, data, canvas} from a file; upright, as its EXIF data say.
async function readPicture(file) {
  let bitmap;
  try {
    bitmap = await createImageBitmap(file, { imageOrientation: "from-image" });
  } catch {
    throw new Problem(`${file.name || "This"} is not a picture that this browser can read.`);
  }
  const scale = Math.min(1, LARGEST_SIDE / Math.max(bitmap.width, bitmap.height));
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.round(bitmap.width * scale));
  canvas.height = Math.max(1, Math.round(bitmap.height * scale));
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.imageSmoothingQuality = "high";
  context.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
  return { width: canvas.width, height: canvas.height, data, canvas };
}

function isPicture(file) {
  return file.type.startsWith("image/");
}

// The classes in a file {classes, threshold}; a Problem for any other file.
async function readClasses(model, file) {
  const bytes = new Uint8Array(await file.arrayBuffer());
  if (bytes.length === 0) throw new Problem(`${file.name} is empty.`);
  const isJson = /\.json$/i.test(file.name) || bytes[0] === 123; // an opening brace
  return isJson
    ? readJson(model, new TextDecoder().decode(bytes), file.name)
    : readPsco(model, bytes, file.name);
}

function download(content, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content], { type: "application/octet-stream" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

// Call `take(files, target)` for files that are dropped on an element or pasted anywhere.
function watchFiles(take, targetOf) {
  let shown = null;
  const show = (target) => {
    shown?.classList.remove("target");
    target?.classList.add("target");
    shown = target;
  };
  addEventListener("dragover", (event) => {
    event.preventDefault();
    show(targetOf(event.target));
  });
  addEventListener("dragleave", (event) => event.relatedTarget === null && show(null));
  addEventListener("drop", (event) => {
    event.preventDefault();
    show(null);
    take([...event.dataTransfer.files], targetOf(event.target));
  });
  addEventListener("paste", (event) => {
    const files = [...event.clipboardData.files];
    if (files.length === 0) return;
    event.preventDefault();
    take(files, null);
  });
}
