"""Stored pages."""

from __future__ import annotations

from fastapi import APIRouter

router = APIRouter(prefix="/api/jobs/{job}", tags=["pages"])
