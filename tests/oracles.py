"""Slow and obvious: dense matrices, loops and math.*, to hold the fast code against. They share nothing with it."""

from __future__ import annotations

import math

import numpy as np

# --- measures of a token matrix X (token, width) -------------------------------------------------------------------


def singular_values(X: np.ndarray) -> list[float]:
    """Roots of the eigenvalues of the smaller Gram matrix: another way than the SVD, good to 1e-8 of the largest."""
    gram = X @ X.T if X.shape[0] <= X.shape[1] else X.T @ X
    return sorted((math.sqrt(max(value, 0.0)) for value in np.linalg.eigvalsh(gram)), reverse=True)


def effective_rank_by_loop(values: list[float]) -> float:
    total = sum(values)
    entropy = 0.0
    for s in values:
        p = s / total
        if p > 0:
            entropy -= p * math.log(p)
    return math.exp(entropy)


def mean_by_loop(X: np.ndarray) -> np.ndarray:
    n, width = X.shape
    return np.array([sum(X[i, c] for i in range(n)) / n for c in range(width)])


def dong_residual_by_loop(X: np.ndarray) -> float:
    """The square roots of the induced 1- and infinity-norms' product, of X minus its mean row and of X."""
    n, width = X.shape
    mean = mean_by_loop(X)

    def norm(Y: np.ndarray) -> float:
        columns = max(sum(abs(Y[i, c]) for i in range(n)) for c in range(width))
        rows = max(sum(abs(Y[i, c]) for c in range(width)) for i in range(n))
        return math.sqrt(columns * rows)

    return norm(X - mean) / norm(X)


def mu_by_loop(X: np.ndarray) -> float:
    mean = mean_by_loop(X)
    part = sum((X[i, c] - mean[c]) ** 2 for i in range(X.shape[0]) for c in range(X.shape[1]))
    whole = sum(X[i, c] ** 2 for i in range(X.shape[0]) for c in range(X.shape[1]))
    return math.sqrt(part / whole)


def mean_cosine_by_loop(X: np.ndarray) -> float:
    """Over all ordered pairs of two different tokens."""
    values = []
    for i in range(len(X)):
        for j in range(len(X)):
            if i != j:
                values.append(sum(X[i] * X[j]) / math.sqrt(sum(X[i] ** 2) * sum(X[j] ** 2)))
    return sum(values) / len(values)


# --- the metric of one token: U is (dim, rank), L and R are (dim, torsion) -----------------------------------------


def metric_eigenvalues(U: np.ndarray) -> np.ndarray:
    return np.linalg.eigvalsh(np.eye(len(U)) + U @ U.T)


def anisotropy_dense(U: np.ndarray) -> float:
    """Fractional anisotropy of all d eigenvalues of the dense metric."""
    values = metric_eigenvalues(U)
    d, mean = len(values), values.mean()
    return math.sqrt(d / (d - 1) * ((values - mean) ** 2).sum() / (values**2).sum())


def logdet_dense(U: np.ndarray) -> float:
    return float(np.log(metric_eigenvalues(U)).sum())


def torsion_norm_dense(L: np.ndarray, R: np.ndarray) -> float:
    T = L @ R.T - R @ L.T
    return math.sqrt(sum(T[a, b] ** 2 for a in range(len(T)) for b in range(len(T))))


# --- attention of one head: q, k (token, dim), U (token, dim, rank), omega (token,) --------------------------------


def score_terms_by_loop(
    q: np.ndarray, k: np.ndarray, U: np.ndarray, tau: float, omega: np.ndarray
) -> dict[str, np.ndarray]:
    """The six summands of the Riemannian score, one pair at a time, each from its own formula."""
    n = len(q)
    names = ("query_norm", "bilinear", "key_norm", "metric_i", "metric_j", "curvature_bias")
    terms = {name: np.zeros((n, n)) for name in names}
    for i in range(n):
        for j in range(n):
            e = q[i] - k[j]
            terms["query_norm"][i, j] = -(q[i] @ q[i]) / tau
            terms["bilinear"][i, j] = 2 * (q[i] @ k[j]) / tau
            terms["key_norm"][i, j] = -(k[j] @ k[j]) / tau
            terms["metric_i"][i, j] = -(e @ U[i] @ U[i].T @ e) / (2 * tau)
            terms["metric_j"][i, j] = -(e @ U[j] @ U[j].T @ e) / (2 * tau)
            terms["curvature_bias"][i, j] = -omega[j]
    return terms


def score_by_loop(
    name: str, q: np.ndarray, k: np.ndarray, U: np.ndarray, tau: float, omega: np.ndarray, alpha: float = 1.0
) -> np.ndarray:
    """One score, with dense metrics g_i = I + U_i U_i^T, one pair at a time."""
    n, d = q.shape
    g = [np.eye(d) + U[t] @ U[t].T for t in range(n)]
    mean = sum(g) / n
    S = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            e = q[i] - k[j]
            euclidean = q[i] @ k[j] / math.sqrt(d)
            riemannian = -(e @ ((g[i] + g[j]) / 2) @ e) / tau - omega[j]
            S[i, j] = {
                "euclidean": euclidean,
                "l2": -(e @ e) / tau,
                "riemannian": riemannian,
                "homogeneous": -(e @ mean @ e) / tau,
                "blended": (1 - alpha) * euclidean + alpha * riemannian,
            }[name]
    return S


def softmax_by_loop(S: np.ndarray, causal: bool, slope: float = 0.0) -> np.ndarray:
    """Row softmax over the keys that a row may see, with an ALiBi slope."""
    n = len(S)
    A = np.zeros((n, n))
    for i in range(n):
        seen = range(i + 1) if causal else range(n)
        logits = [S[i, j] - slope * abs(i - j) for j in seen]
        top = max(logits)
        weights = [math.exp(value - top) for value in logits]
        for j, weight in zip(seen, weights, strict=True):
            A[i, j] = weight / sum(weights)
    return A


def row_entropy_by_loop(row: np.ndarray) -> float:
    return -sum(p * math.log(p) for p in row if p > 0)


def total_variation_by_loop(a: np.ndarray, b: np.ndarray) -> float:
    return sum(abs(x - y) for x, y in zip(a, b, strict=True)) / 2


def jensen_shannon_by_loop(a: np.ndarray, b: np.ndarray) -> float:
    """The mean of the two Kullback-Leibler divergences from the mixture: its definition."""
    total = 0.0
    for x, y in zip(a, b, strict=True):
        middle = (x + y) / 2
        total += sum(p * math.log(p / middle) for p in (x, y) if p > 0) / 2
    return total


def dobrushin_by_loop(A: np.ndarray) -> float:
    return max(total_variation_by_loop(A[i], A[k]) for i in range(len(A)) for k in range(len(A)))


def score_shares_by_loop(terms: dict[str, np.ndarray], causal: bool) -> dict[str, float]:
    """cov(term, total) / var(total) over all allowed pairs, rows centred over their allowed keys."""
    n = len(next(iter(terms.values())))
    total = sum(terms.values())
    covariance, variance = dict.fromkeys(terms, 0.0), 0.0
    for i in range(n):
        seen = range(i + 1) if causal else range(n)
        mean = sum(total[i, j] for j in seen) / len(seen)
        variance += sum((total[i, j] - mean) ** 2 for j in seen)
        for name, term in terms.items():
            own = sum(term[i, j] for j in seen) / len(seen)
            covariance[name] += sum((term[i, j] - own) * (total[i, j] - mean) for j in seen)
    return {name: value / variance for name, value in covariance.items()}
