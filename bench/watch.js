/* Injected before a page's own scripts: notes when the browser asked the server, what came back, and when a component
 * whose root counts its drawings in data-updates had painted. Times are performance.now(), 0 at the navigation. */
(() => {
  const log = (window.benchLog = { sent: [], got: [], painted: [] });
  const size = (data) => data?.size ?? data?.byteLength ?? data?.length ?? 0;
  const Plain = window.WebSocket;
  window.WebSocket = class extends Plain {
    constructor(...given) {
      super(...given);
      this.addEventListener('message', (event) => log.got.push([performance.now(), size(event.data)]));
    }

    send(data) {
      log.sent.push(performance.now());
      super.send(data);
    }
  };
  const fetched = window.fetch;
  window.fetch = async (...given) => {
    const own = String(given[0]?.url ?? given[0]).includes('/tiles/');
    if (own) log.sent.push(performance.now());
    const answer = await fetched(...given);
    if (own) answer.clone().arrayBuffer().then((bytes) => log.got.push([performance.now(), bytes.byteLength]));
    return answer;
  };
  const painted = (records) => {
    const names = records.map(({ target }) => `${target.className} ${target.dataset.updates}`);
    requestAnimationFrame(() => setTimeout(() => log.painted.push([performance.now(), ...names])));
  };
  const watch = (root) => {
    const options = { subtree: true, attributes: true, attributeFilter: ['data-updates'] };
    new MutationObserver(painted).observe(root, options);
  };
  watch(document);
  const attach = Element.prototype.attachShadow;
  Element.prototype.attachShadow = function (...given) {
    const root = attach.apply(this, given);
    watch(root);
    return root;
  };
})();
