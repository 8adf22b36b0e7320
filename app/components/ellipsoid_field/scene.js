/* WebGL2: each ellipsoid is one instanced quad that faces the eye; the fragment shader casts the ray onto it.
 * An instance is 15 floats: centre, three semi-axis vectors, colour. The last instance is the witness sphere. */

const FLOATS = 15;

const ELLIPSOID_VERTEX = `#version 300 es
layout(location=0) in vec2 corner;
layout(location=1) in vec3 centre;
layout(location=2) in vec3 axisA;
layout(location=3) in vec3 axisB;
layout(location=4) in vec3 axisC;
layout(location=5) in vec3 colour;
uniform mat4 matrix;
uniform vec3 eye;
flat out mat3 toUnit;
flat out vec3 middle;
flat out vec3 tint;
flat out int instance;
out vec3 onQuad;
void main() {
  mat3 axes = mat3(axisA, axisB, axisC);
  vec3 sight = centre - eye;
  float span = length(sight);
  sight /= span;
  vec3 u = normalize(cross(abs(sight.z) < .99 ? vec3(0, 0, 1) : vec3(1, 0, 0), sight));
  vec3 v = cross(sight, u);
  // Half widths of the ellipsoid along u, v and the line of sight; what is nearer than the centre looks larger.
  float wide = length(u * axes), high = length(v * axes), deep = length(sight * axes);
  float margin = 1.04 * span / max(span - deep, .05 * span);
  onQuad = centre + margin * (corner.x * wide * u + corner.y * high * v);
  toUnit = inverse(axes);
  middle = centre; tint = colour; instance = gl_InstanceID;
  gl_Position = matrix * vec4(onQuad, 1.);
}`;

const ELLIPSOID_FRAGMENT = `#version 300 es
precision highp float;
uniform mat4 matrix;
uniform vec3 eye, forward, light, ink, paper, mark;
uniform vec2 haze; // depth at which it starts, and where it would end
uniform int selected, hovered, witness;
flat in mat3 toUnit;
flat in vec3 middle;
flat in vec3 tint;
flat in int instance;
in vec3 onQuad;
out vec4 shade;
void main() {
  // In coordinates where the ellipsoid is the unit sphere. It starts on the quad, not at the eye: float32 will do.
  vec3 ray = normalize(onQuad - eye);
  vec3 start = toUnit * (onQuad - middle), stride = toUnit * ray;
  float closest = -dot(start, stride) / dot(stride, stride);
  vec3 foot = start + closest * stride;
  float inside = 1. - dot(foot, foot);
  float coverage = clamp(inside / max(fwidth(inside), 1e-6) + .5, 0., 1.); // a smooth edge, by multisampling
  if (coverage <= 0.) discard;
  float t = closest - sqrt(max(inside, 0.) / dot(stride, stride));
  vec3 onUnit = start + t * stride, point = onQuad + t * ray;
  vec3 normal = normalize(onUnit * toUnit);
  vec4 clip = matrix * vec4(point, 1.);
  gl_FragDepth = .5 * clip.z / clip.w + .5;
  float lambert = max(dot(normal, light), 0.), facing = max(dot(normal, -ray), 0.), rim = pow(1. - facing, 3.);
  vec3 colour = tint;
  if (instance == witness) { // ruled like a globe, so that it is no token
    vec2 globe = vec2(atan(onUnit.y, onUnit.x), asin(clamp(onUnit.z, -1., 1.))) * 3.8197;
    vec2 rule = abs(fract(globe) - .5) / max(fwidth(globe), vec2(1e-4));
    colour = mix(mix(ink, paper, .55), mix(ink, paper, .25), 1. - smoothstep(.4, 1.4, min(rule.x, rule.y)));
  }
  colour = colour * (.70 + .34 * lambert) + .10 * pow(max(dot(reflect(-light, normal), -ray), 0.), 20.);
  colour = mix(colour, ink, .42 * rim);
  float far = clamp((dot(point - eye, forward) - haze.x) / (haze.y - haze.x), 0., 1.);
  colour = mix(colour, paper, .55 * far);
  if (instance == selected) colour = mix(colour, mark, smoothstep(.35, .62, 1. - facing));
  if (instance == hovered) colour = mix(colour, ink, .15 + .6 * smoothstep(.55, .8, 1. - facing));
  shade = vec4(colour, coverage);
}`;

const LINE_VERTEX = `#version 300 es
layout(location=0) in vec3 point;
uniform mat4 matrix;
void main() { gl_Position = matrix * vec4(point, 1.); }`;

const LINE_FRAGMENT = `#version 300 es
precision highp float;
uniform vec4 colour;
out vec4 shade;
void main() { shade = colour; }`;

class Scene {
  constructor(canvas) {
    const gl = canvas.getContext('webgl2', { antialias: true, alpha: false, preserveDrawingBuffer: false });
    if (!gl) throw new Error('This browser offers no WebGL2');
    this.gl = gl;
    this.ellipsoids = program(gl, ELLIPSOID_VERTEX, ELLIPSOID_FRAGMENT);
    this.lines = program(gl, LINE_VERTEX, LINE_FRAGMENT);
    this.instances = gl.createBuffer();
    this.segments = gl.createBuffer();
    this.glyphs = gl.createVertexArray();
    gl.bindVertexArray(this.glyphs);
    gl.bindBuffer(gl.ARRAY_BUFFER, gl.createBuffer());
    gl.bufferData(gl.ARRAY_BUFFER, new Float32Array([-1, -1, 1, -1, -1, 1, 1, 1]), gl.STATIC_DRAW);
    attribute(gl, 0, 2, 8, 0, 0);
    gl.bindBuffer(gl.ARRAY_BUFFER, this.instances);
    for (let vector = 0; vector < 5; vector += 1) attribute(gl, 1 + vector, 3, 4 * FLOATS, 12 * vector, 1);
    this.ruling = gl.createVertexArray();
    gl.bindVertexArray(this.ruling);
    gl.bindBuffer(gl.ARRAY_BUFFER, this.segments);
    attribute(gl, 0, 3, 12, 0, 0);
    this.count = 0;
  }

  upload(instances) {
    const { gl } = this;
    gl.bindBuffer(gl.ARRAY_BUFFER, this.instances);
    gl.bufferData(gl.ARRAY_BUFFER, instances, gl.DYNAMIC_DRAW);
    this.count = instances.length / FLOATS;
  }

  draw(lens, camera, theme, walls, { selected, hovered }) {
    const { gl } = this;
    gl.viewport(0, 0, gl.drawingBufferWidth, gl.drawingBufferHeight);
    gl.clearColor(...theme.paper, 1);
    gl.enable(gl.DEPTH_TEST);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
    walls.forEach(({ points, strength }) => this.drawLines(points, lens, theme, strength));
    const set = uniforms(gl, this.ellipsoids);
    gl.enable(gl.SAMPLE_ALPHA_TO_COVERAGE);
    gl.bindVertexArray(this.glyphs);
    gl.uniformMatrix4fv(set('matrix'), false, lens.matrix);
    gl.uniform3fv(set('eye'), lens.eye);
    gl.uniform3fv(set('forward'), lens.forward);
    gl.uniform3fv(set('light'), unit(add(add(add([0, 0, 0], lens.up, 0.75), lens.right, -0.5), lens.forward, -0.8)));
    gl.uniform3fv(set('ink'), theme.ink);
    gl.uniform3fv(set('paper'), theme.paper);
    gl.uniform3fv(set('mark'), theme.mark);
    gl.uniform2f(set('haze'), camera.distance - 0.5 * camera.radius, camera.distance + 1.3 * camera.radius);
    gl.uniform1i(set('selected'), selected);
    gl.uniform1i(set('hovered'), hovered);
    gl.uniform1i(set('witness'), this.count - 1);
    gl.drawArraysInstanced(gl.TRIANGLE_STRIP, 0, 4, this.count);
    gl.disable(gl.SAMPLE_ALPHA_TO_COVERAGE);
  }

  drawLines(points, lens, theme, strength) {
    const { gl } = this;
    const set = uniforms(gl, this.lines);
    gl.bindVertexArray(this.ruling);
    gl.bindBuffer(gl.ARRAY_BUFFER, this.segments);
    gl.bufferData(gl.ARRAY_BUFFER, new Float32Array(points.flat()), gl.STREAM_DRAW);
    gl.uniformMatrix4fv(set('matrix'), false, lens.matrix);
    gl.uniform4f(set('colour'), ...theme.paper.map((c, k) => c + strength * (theme.ink[k] - c)), 1);
    gl.drawArrays(gl.LINES, 0, points.length);
  }

  dispose() {
    this.gl.getExtension('WEBGL_lose_context')?.loseContext();
  }
}

function program(gl, vertex, fragment) {
  const linked = gl.createProgram();
  [[gl.VERTEX_SHADER, vertex], [gl.FRAGMENT_SHADER, fragment]].forEach(([kind, source]) => {
    const shader = gl.createShader(kind);
    gl.shaderSource(shader, source);
    gl.compileShader(shader);
    gl.attachShader(linked, shader);
  });
  gl.linkProgram(linked);
  if (!gl.getProgramParameter(linked, gl.LINK_STATUS)) {
    const logs = gl.getAttachedShaders(linked).map((shader) => gl.getShaderInfoLog(shader));
    const reason = [gl.getProgramInfoLog(linked), ...logs].join(' ').trim();
    throw new Error(`The graphics driver refused a shader (${reason})`);
  }
  return linked;
}

function uniforms(gl, linked) {
  gl.useProgram(linked);
  linked.places ??= {};
  return (name) => (linked.places[name] ??= gl.getUniformLocation(linked, name));
}

function attribute(gl, location, size, stride, offset, divisor) {
  gl.enableVertexAttribArray(location);
  gl.vertexAttribPointer(location, size, gl.FLOAT, false, stride, offset);
  gl.vertexAttribDivisor(location, divisor);
}

/* The nearest ellipsoid on a ray, or -1: the same quadric as in the shader, over all instances but the witness. */
function pick(instances, eye, ray) {
  let nearest = Infinity, found = -1;
  for (let at = 0, index = 0; at < instances.length - FLOATS; at += FLOATS, index += 1) {
    const [start, step] = toUnitSphere(instances, at, eye, ray);
    const closest = -dot(start, step) / dot(step, step);
    const foot = add(start, step, closest);
    const inside = 1 - dot(foot, foot);
    const t = closest - Math.sqrt(Math.max(inside, 0) / dot(step, step));
    if (inside >= 0 && t > 0 && t < nearest) [nearest, found] = [t, index];
  }
  return found;
}

/* A ray in the coordinates where the ellipsoid is the unit sphere, by Cramer's rule. */
function toUnitSphere(instances, at, eye, ray) {
  const vector = (k) => [instances[at + k], instances[at + k + 1], instances[at + k + 2]];
  const [centre, a, b, c] = [0, 3, 6, 9].map(vector);
  const rows = [cross(b, c), cross(c, a), cross(a, b)];
  const volume = dot(a, rows[0]);
  const away = add(eye, centre, -1);
  return [rows.map((row) => dot(row, away) / volume), rows.map((row) => dot(row, ray) / volume)];
}
