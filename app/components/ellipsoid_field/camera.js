/* An orbiting camera. Lengths on the screen are CSS pixels, measured from the top left corner of the figure. */

const FIELD_OF_VIEW = 0.55; // radians, across the smaller side of the stage
const START = { azimuth: 0.72, elevation: 0.42 }; // also the first camera of the Plotly twin

const add = (a, b, scale = 1) => [a[0] + scale * b[0], a[1] + scale * b[1], a[2] + scale * b[2]];
const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
const unit = (a) => a.map((x) => x / Math.hypot(...a));

class Camera {
  constructor() {
    this.reset();
  }

  reset() {
    Object.assign(this, START, { zoom: 1.06, offset: [0, 0, 0] });
  }

  /* What must stay in view: [low, high] of the box, and the witness. Where the camera looks from is not touched; a
   * displacement of the target goes along with the size of what is shown. */
  frame([low, high], witness) {
    const centre = low.map((l, k) => (l + high[k]) / 2);
    const radius = Math.hypot(...add(high, centre, -1));
    const offset = this.radius ? this.offset.map((x) => (x * radius) / this.radius) : this.offset;
    const top = add(witness.centre, centre, -1);
    const rims = [[Math.hypot(high[0] - centre[0], high[1] - centre[1]), high[2] - centre[2]],
      [Math.hypot(top[0], top[1]) + witness.radius, top[2] + witness.radius]];
    // Turned about the vertical, the box sweeps a cylinder: if that fits, nothing is ever cut, and nothing throbs.
    const turns = Array.from({ length: 24 }, (_, k) => (k * Math.PI) / 12);
    const sweep = rims.flatMap(([r, z]) => turns.flatMap((t) => [z, -rims[0][1]].map((height) =>
      [r * Math.cos(t), r * Math.sin(t), height])));
    Object.assign(this, { centre, radius, offset, sweep });
  }

  orbit(dx, dy) {
    this.azimuth -= 0.008 * dx;
    this.elevation = Math.max(-1.55, Math.min(1.55, this.elevation + 0.008 * dy));
  }

  magnify(factor) {
    this.zoom = Math.max(0.05, Math.min(20, this.zoom * factor));
  }

  pan(dx, dy, lens) {
    const perPixel = this.distance / lens.focal;
    this.offset = add(add(this.offset, lens.right, -dx * perPixel), lens.up, dy * perPixel);
  }

  /* The least distance at which the whole sweep is on the stage. */
  fitting(forward, right, up, focal, stage) {
    return Math.max(...this.sweep.map((p) => -dot(p, forward)
      + focal * Math.max(Math.abs(dot(p, right)) / (stage.width / 2), Math.abs(dot(p, up)) / (stage.height / 2))));
  }

  /* Everything that depends on the camera for one picture of width x height whose middle is that of ``stage``. */
  lens(width, height, stage) {
    const [ce, se] = [Math.cos(this.elevation), Math.sin(this.elevation)];
    const back = [ce * Math.cos(this.azimuth), ce * Math.sin(this.azimuth), se];
    const forward = back.map((x) => -x);
    const right = unit(cross(forward, [0, 0, 1]));
    const up = cross(right, forward);
    const focal = Math.min(stage.width, stage.height) / 2 / Math.tan(FIELD_OF_VIEW / 2);
    this.distance = this.fitting(forward, right, up, focal, stage) / this.zoom;
    this.target = add(this.centre, this.offset);
    const eye = add(this.target, back, this.distance);
    const middle = [stage.x + stage.width / 2, stage.y + stage.height / 2];
    const near = Math.max(0.01 * this.distance, this.distance - 6 * this.radius);
    const far = this.distance + 6 * this.radius;
    // Row by row: clip = M [p, 1]; the third column of a pinhole in pixels shifts the middle of the picture.
    const depth = [...forward, -dot(forward, eye)];
    const row = (side, zoom, shift) => [...side, -dot(side, eye)].map((v, k) => zoom * v + shift * depth[k]);
    const x = row(right, (2 * focal) / width, (2 * middle[0]) / width - 1);
    const y = row(up, (2 * focal) / height, 1 - (2 * middle[1]) / height);
    const z = depth.map((v, k) => ((far + near) / (far - near)) * v - (k === 3 ? (2 * far * near) / (far - near) : 0));
    const matrix = new Float32Array([0, 1, 2, 3].flatMap((k) => [x[k], y[k], z[k], depth[k]])); // column-major
    const project = (p) => {
      const away = add(p, eye, -1);
      const w = dot(away, forward);
      return [middle[0] + (focal * dot(away, right)) / w, middle[1] - (focal * dot(away, up)) / w, w];
    };
    const ray = (px, py) =>
      unit(add(add(forward, right, (px - middle[0]) / focal), up, (middle[1] - py) / focal));
    return { eye, forward, right, up, focal, matrix, project, ray, back };
  }

  toJSON() {
    const round = (x) => +x.toFixed(4);
    return { azimuth: round(this.azimuth), elevation: round(this.elevation), zoom: round(this.zoom),
      offset: this.offset.map(round) };
  }
}
