"""Speech-like sound made from nothing: syllables with moving formants, pauses and noise.

A speech detector takes it for speech, so that nobody has to ship or fetch recordings.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RATE = 16_000
_HOP = 80  # samples between two control points

Samples = NDArray[np.float64]
Random = np.random.Generator

# The first three formants of eight vowels, in Hz.
_VOWELS = np.array(
    [
        (730, 1090, 2440),
        (270, 2290, 3010),
        (300, 870, 2240),
        (530, 1840, 2480),
        (570, 840, 2410),
        (660, 1720, 2410),
        (490, 1350, 1690),
        (640, 1190, 2390),
    ],
    dtype=np.float64,
)
_BANDWIDTHS = (60.0, 90.0, 150.0, 200.0)


@dataclass(frozen=True)
class _Controls:
    """What the synthesiser follows, one value for every hop."""

    pitch: Samples
    formants: NDArray[np.float64]  # hops x 4
    voiced: Samples  # amplitude of the voice
    noise: Samples  # amplitude of the fricatives and bursts
    noise_pitch: Samples  # where their energy lies, in Hz


def speech(random: Random, seconds: float) -> Samples:
    """Join utterances of a second or two, with pauses between them."""
    wanted, length = round(seconds * RATE), 0
    parts: list[Samples] = []
    while length < wanted:
        pause = np.zeros(int(random.uniform(0.5, 1.8) * RATE))
        level = 0.06 * 10 ** (random.uniform(-6, 6) / 20)
        parts += [pause, level * _utterance(random, random.uniform(0.8, 2.6))]
        length += len(parts[-2]) + len(parts[-1])
    return np.concatenate(parts)[:wanted]


def add_noise(random: Random, clean: Samples, level: float) -> Samples:
    """Add noise that falls towards high frequencies, 5 to 20 dB below ``level`` in turns."""
    spectrum = np.fft.rfft(random.standard_normal(len(clean)))
    frequency = np.fft.rfftfreq(len(clean), 1 / RATE)
    noise = np.fft.irfft(spectrum / np.sqrt(np.maximum(frequency, 60)), len(clean))
    ratios = random.uniform(5, 20, max(2, len(clean) // (5 * RATE)))
    ratio = np.interp(np.linspace(0, 1, len(clean)), np.linspace(0, 1, len(ratios)), ratios)
    noisy: Samples = clean + noise / noise.std() * level * 10 ** (-ratio / 20)
    return noisy


def _utterance(random: Random, seconds: float) -> Samples:
    controls = _controls(random, int(seconds * RATE / _HOP))
    voiced = _voice(random, controls)
    voiced /= np.sqrt(np.mean(voiced**2)) + 1e-9
    return voiced + _fricatives(random, controls)


def _controls(random: Random, hops: int) -> _Controls:
    """Lay syllables, a consonant and a vowel each, one after another."""
    base = random.uniform(85, 140) if random.random() < 0.5 else random.uniform(165, 240)
    size = 1.0 if base < 150 else 1.15  # shorter throats have higher formants
    voiced, noise, noise_pitch = np.zeros(hops), np.zeros(hops), np.full(hops, 4000.0)
    when: list[int] = []
    targets: list[NDArray[np.float64]] = []
    at = 0
    while at < hops - 8:
        vowel = np.append(_VOWELS[random.integers(len(_VOWELS))] * size, 3500 * size)
        start = at + int(random.uniform(8, 20))
        end = start + int(random.uniform(14, 40))
        kind = random.integers(4)
        if kind == 0:  # fricative
            noise[at:start] = random.uniform(0.1, 0.4)
            noise_pitch[at:start] = random.uniform(2500, 6000)
            onset = vowel * random.uniform(0.85, 1.1)
        elif kind == 1:  # stop: silence, then a burst
            noise[start - 4 : start] = random.uniform(0.2, 0.6)
            noise_pitch[start - 4 : start] = random.uniform(1000, 5000)
            onset = vowel * np.array([0.5, random.uniform(0.7, 1.3), 1.05, 1.0])
        else:  # nasal or glide
            voiced[at:start] = random.uniform(0.2, 0.6)
            onset = np.array([300, random.uniform(700, 1900), random.uniform(1800, 2600), 3400])
        voiced[start:end] = random.uniform(0.7, 1.0)
        when += [start - 4, start + 4, max(start + 5, end - 4)]
        targets += [onset, vowel, vowel * random.uniform(0.9, 1.1)]
        at = end
    return _Controls(
        pitch=_intonation(random, hops, base),
        formants=_glide(hops, when, np.array(targets)),
        voiced=_smooth(voiced, 9),
        noise=_smooth(noise, 5),
        noise_pitch=noise_pitch,
    )


def _glide(hops: int, when: list[int], targets: NDArray[np.float64]) -> NDArray[np.float64]:
    """Move every formant linearly from target to target."""
    return np.stack([np.interp(np.arange(hops), when, column) for column in targets.T], axis=1)


def _smooth(values: Samples, width: int) -> Samples:
    window = np.hanning(width)
    return np.convolve(values, window / window.sum(), "same")


def _intonation(random: Random, hops: int, base: float) -> Samples:
    """Let the pitch rise and fall about ``base``, and sink towards the end."""
    time = np.arange(hops) * _HOP / RATE
    swing = 0.12 * np.sin(2 * np.pi * random.uniform(0.5, 2.5) * time + random.uniform(0, 6))
    wander = 0.01 * np.cumsum(random.standard_normal(hops)) / np.sqrt(hops)
    pitch: Samples = base * (1 + swing + wander - 0.15 * np.arange(hops) / hops)
    return pitch


def _voice(random: Random, controls: _Controls) -> Samples:
    """Sum the harmonics of the pitch, each as loud as the formants make it."""
    hops = len(controls.pitch)
    at = np.arange(hops * _HOP) / _HOP
    jitter = 1 + 0.004 * np.interp(at, np.arange(hops), random.standard_normal(hops))
    pitch = np.interp(at, np.arange(hops), controls.pitch) * jitter
    phase = 2 * np.pi * np.cumsum(pitch) / RATE
    total = np.zeros(len(at))
    for harmonic in range(1, int(5000 / controls.pitch.min())):
        loudness = controls.voiced * _resonance(controls.pitch * harmonic, controls.formants)
        total += np.interp(at, np.arange(hops), loudness) * np.sin(harmonic * phase)
    return total


def _resonance(frequency: Samples, formants: NDArray[np.float64]) -> Samples:
    """Give the gain of the vocal tract, with the fall of the glottal source in it."""
    gain = 1 / np.sqrt(1 + (frequency / 200) ** 2)
    for formant, bandwidth in zip(formants.T, _BANDWIDTHS, strict=True):
        distance = formant**2 - frequency**2
        gain = gain * formant**2 / np.sqrt(distance**2 + (bandwidth * frequency) ** 2)
    return gain


def _fricatives(random: Random, controls: _Controls) -> Samples:
    """Shape white noise, window by window."""
    hops, width = len(controls.noise), 2 * _HOP
    white = random.standard_normal((hops + 1) * _HOP)
    windows = np.arange(hops)[:, np.newaxis] * _HOP + np.arange(width)
    spectrum = np.fft.rfft(white[windows] * np.hanning(width), axis=1)
    frequency = np.fft.rfftfreq(width, 1 / RATE)
    away = (frequency - controls.noise_pitch[:, np.newaxis]) / 900
    shaped = spectrum * np.exp(-0.5 * away**2) * controls.noise[:, np.newaxis] * 2
    total = np.zeros(len(white))
    np.add.at(total, windows, np.fft.irfft(shaped, width, axis=1))
    return total[: hops * _HOP]
