// Sends chosen or dropped files by PUT, one after the other, and tells Python when all have arrived.
// File names go to Python as data and to the page as text; the address that is written to holds neither.

const USEFUL = /\.(safetensors|bin|pt|pth|ckpt|gguf|json|txt|model|npz|zip|tar|gz|tgz)$/i;
const running = new WeakMap();

export default function ({ data, parentElement, setTriggerValue }) {
  const find = (name) => parentElement.querySelector(`.${name}`);
  const state = running.get(parentElement) ?? { request: null };
  running.set(parentElement, state);

  const take = (chosen) => {
    const files = chosen.length > 1 ? chosen.filter((file) => file.size > 0) : chosen;
    if (state.request || !files.length) return;
    const fault = reason(files, data);
    say(find, fault);
    if (!fault) send(files, data, state, find, setTriggerValue);
  };
  find("files").onclick = () => find("pick-files").click();
  find("folder").onclick = () => find("pick-folder").click();
  find("stop").onclick = () => state.request?.abort();
  for (const name of ["pick-files", "pick-folder"]) {
    find(name).onchange = ({ target }) => {
      const files = [...target.files];
      target.value = ""; // the same file may be chosen again
      take(name === "pick-folder" ? ofFolder(files) : files);
    };
  }
  const drop = find("drop");
  drop.ondragover = (event) => (event.preventDefault(), drop.classList.add("over"));
  drop.ondragleave = () => drop.classList.remove("over");
  drop.ondrop = (event) => {
    event.preventDefault();
    drop.classList.remove("over");
    take([...event.dataTransfer.files]);
  };
}

/** What lies in the chosen folder itself and may belong to a checkpoint; not what lies deeper. */
function ofFolder(files) {
  return files.filter((file) => file.webkitRelativePath.split("/").length === 2 && USEFUL.test(file.name));
}

function reason(files, { limit, most }) {
  if (files.length > most) return `${files.length} files; at most ${most} make one checkpoint.`;
  const large = files.find((file) => file.size > limit);
  if (large) return `${large.name} has ${size(large.size)}; at most ${size(limit)} are taken.`;
  return files.some((file) => !file.size) ? `${files[0].name} is an empty file.` : "";
}

async function send(files, data, state, find, setTriggerValue) {
  const total = files.reduce((sum, file) => sum + file.size, 0);
  let before = 0;
  find("sending").hidden = false;
  find("choice").hidden = find("hint").hidden = true;
  try {
    for (const [number, file] of files.entries()) {
      await put(file, `${data.address}/${data.token}/${number}`, state, (bytes) => {
        find("what").textContent = `${file.name} · ${size(before + bytes)} of ${size(total)}`;
        find("done").style.width = `${(100 * (before + bytes)) / Math.max(total, 1)}%`;
      });
      before += file.size;
    }
    const folder = files[0].webkitRelativePath.split("/")[0];
    setTriggerValue("sent", { token: data.token, names: files.map((file) => file.name), folder });
  } catch (fault) {
    say(find, fault.message);
    setTriggerValue("stale", data.token);
  } finally {
    state.request = null;
    find("sending").hidden = true;
    find("choice").hidden = find("hint").hidden = false;
  }
}

function put(file, address, state, onProgress) {
  return new Promise((resolve, reject) => {
    const request = (state.request = new XMLHttpRequest());
    request.open("PUT", address);
    request.upload.onprogress = ({ loaded }) => onProgress(loaded);
    request.onload = () => (request.status === 200 ? resolve() : reject(new Error(message(request))));
    request.onerror = () => reject(new Error("The connection broke. Nothing was kept; choose the files again."));
    request.onabort = () => reject(new Error("Stopped. Nothing was kept."));
    onProgress(0);
    request.send(file);
  });
}

function message(request) {
  try {
    return String(JSON.parse(request.responseText).message);
  } catch {
    return `The server answered ${request.status}.`;
  }
}

function say(find, text) {
  find("fault").textContent = text;
  find("fault").hidden = !text;
}

function size(bytes) {
  const units = ["bytes", "kB", "MB", "GB"];
  const power = bytes < 1000 ? 0 : Math.min(3, Math.floor(Math.log10(bytes) / 3));
  return `${(bytes / 1000 ** power).toFixed(power > 1 ? 1 : 0)} ${units[power]}`;
}
